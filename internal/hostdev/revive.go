package hostdev

import "errors"

// keeper gives a function to the nvme driver while its namespace is waited for.
type keeper struct{ f *Finder }

// bind does nothing about a function that is not there, or is not known for sure.
func (k *keeper) bind(id Identity) error {
	addr, err := k.f.locate(id.Address, id.VUID)
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrAmbiguous) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.f.BindDriver(addr, nvmeDriver); !errors.Is(err, ErrAbsent) {
		return err
	}
	return nil
}
