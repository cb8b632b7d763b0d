package remote

import "github.com/moor-storage/moor/internal/filestore"

// owners remembers in a directory, made when needed, whose a device is. What is
// there may be old: it counts only for a device that reaches what it says.
type owners struct{ filestore.Store[owner] }

func ownersIn(dir string) owners { return owners{filestore.Store[owner]{Dir: dir}} }

// owner is one record.
type owner struct {
	Device string `json:"device"`
	Volume string `json:"volume"`
	// Reaches is what the device was made over.
	Reaches string `json:"reaches"`
}

// remember records whose a device is.
func (o owners) remember(r owner) error { return o.Put(r.Device, r) }

// of returns the volume that the device over reaches was made for; empty if
// that is not known.
func (o owners) of(device, reaches string) (string, error) {
	r, err := o.recall(device)
	if err != nil || r.Reaches != reaches {
		return "", err
	}
	return r.Volume, nil
}

// recall returns the record of a device; an empty one if there is none.
func (o owners) recall(device string) (owner, error) {
	r, _, err := o.Get(device)
	if err != nil || r.Device != device {
		return owner{}, err
	}
	return r, nil
}

func (o owners) forget(device string) error { return o.Delete(device) }
