package placement

import "fmt"

// LostPath is a volume whose way from a DPU to the storage is lost.
type LostPath struct {
	// Volume is its ID.
	Volume string
	// Vendor whose storage has the volume; empty: not known.
	Vendor string
	// Message says by what it is known; it may be empty.
	Message string
}

// Lost are the lost paths of one DPU.
type Lost struct {
	// DPU that tells of them.
	DPU string
	// Paths, one of each volume.
	Paths []LostPath
	// All: no device of the DPU has a path that is not lost.
	All bool
}

// words say that the DPU has lost its way to the storage of one of the volumes; ""
// if it has not. Where no path is left, those that are lost speak for all volumes of their
// vendors: the DPU reaches them in the same way, and tells only of those that it has a
// device of. One volume alone that cannot be reached says nothing of others.
func (l *Lost) words(volumes ...Volume) string {
	if l == nil {
		return ""
	}
	var own, akin *LostPath
	for i := range l.Paths {
		p := &l.Paths[i]
		for j := range volumes {
			switch v := &volumes[j]; {
			case v.ID == p.Volume:
				own = first(own, p)
			case l.All && v.Vendor != "" && v.Vendor == p.Vendor:
				akin = first(akin, p)
			}
		}
	}
	switch {
	case own != nil:
		return fmt.Sprintf("DPU %s has lost its way to the storage of volume %s", l.DPU, own)
	case akin != nil:
		return fmt.Sprintf("DPU %s has lost its way to the storage of vendor %q (volume %s)", l.DPU, akin.Vendor, akin)
	}
	return ""
}

// first is the path whose volume has the lesser ID, so that the words do not depend
// on the order in which the DPU tells of its paths.
func first(a, b *LostPath) *LostPath {
	if a == nil || b.Volume < a.Volume {
		return b
	}
	return a
}

// String is the volume, and by what its loss is known.
func (p *LostPath) String() string {
	if p.Message == "" {
		return p.Volume
	}
	return p.Volume + ": " + p.Message
}
