package provisioner

import "context"

// Page asks for a part of a list that is ordered by ID.
type Page struct {
	// After is the ID after which the page begins; empty for the first. What
	// it names may be gone: the order has a place for it all the same.
	After string
	// Max is the most entries of the page; 0 means all.
	Max int
}

// Cut returns the page of ids, which are in order, and where the next one goes
// on: empty after the last. An ID that is there throughout a walk over the pages
// is met exactly once, whatever else comes and goes meanwhile.
func (p Page) Cut(ids []string) (page []string, next string) {
	for i, id := range ids {
		if p.After != "" && id <= p.After {
			continue
		}
		page = ids[i:]
		break
	}
	if p.Max > 0 && len(page) > p.Max {
		page = page[:p.Max]
		next = page[p.Max-1]
	}
	return page, next
}

// Entry is a volume with those who have it.
type Entry struct {
	Volume
	// Nodes are those it is attached to, in order.
	Nodes []string
}

// Inventory tells of the volumes there are.
type Inventory interface {
	// List returns a page of the volumes, ordered by ID; next is where the
	// following page goes on, empty after the last.
	List(ctx context.Context, page Page) (entries []Entry, next string, err error)
	// Look returns one volume, or ErrNotFound.
	Look(ctx context.Context, id string) (Entry, error)
}

// Capacity is how much room there is, in bytes.
type Capacity struct {
	// Available is how much can be given out still.
	Available int64
	// Largest and Smallest bound the size of one volume; 0 means not known.
	Largest, Smallest int64
}

// Room tells how much room there is.
type Room interface {
	// Capacity returns the room for volumes with these parameters of a
	// StorageClass that are reached from a place; nil: from anywhere. ErrInvalid
	// if no volume can have them.
	Capacity(ctx context.Context, parameters map[string]string, from Place) (Capacity, error)
}
