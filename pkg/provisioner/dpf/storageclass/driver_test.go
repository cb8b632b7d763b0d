package storageclass

import (
	"errors"
	"maps"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestDriver: the StorageClasses that DPF publishes name no emulation, their driver does.
func TestDriver(t *testing.T) {
	dpf := map[string]string{"policy": "policy-fs", "functionType": "pf", "hotplugFunction": "true"}
	shared := map[string]string{"policy": "policy-fs", "functionType": "pf", "hotplugFunction": "true", "emulation": "virtiofs"}
	for name, c := range map[string]struct {
		driver     string
		parameters map[string]string
		want       map[string]string
		shares     bool
	}{
		"DPF's class, driver of virtio-fs": {"virtiofs", dpf, shared, true},
		"DPF's class, driver of NVMe":      {"nvme", dpf, dpf, false},
		"no driver's mode":                 {"", dpf, dpf, false},
		"the class says it":                {"nvme", shared, shared, true},
		"both say it":                      {"virtiofs", shared, shared, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, before := Driver{Emulation: c.driver}, maps.Clone(c.parameters)
			got, err := d.Normalize(c.parameters)
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
			if d.SharesFilesystem(c.parameters) != c.shares {
				t.Errorf("shared is not %v", c.shares)
			}
			if !maps.Equal(c.parameters, before) {
				t.Error("the parameters were changed")
			}
		})
	}
	if !(Driver{Emulation: "virtiofs"}).SharesFilesystem(nil) {
		t.Error("a volume that DPF made has no key in its context, and is shared all the same")
	}
	if _, err := (Driver{Emulation: "virtiofs"}).Normalize(map[string]string{"policy": "p", "emulation": "NVMe"}); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("NVMe of a driver of virtio-fs: %v", err)
	}
	for emulation, ok := range map[string]bool{"nvme": true, "virtiofs": true, "": false, "9p": false} {
		if err := CheckDriver(emulation); (err == nil) != ok {
			t.Errorf("%q: %v", emulation, err)
		}
	}
}
