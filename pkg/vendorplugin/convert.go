package vendorplugin

import (
	"fmt"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

var wireModes = map[provisioner.AccessMode]pluginv1.AccessMode{
	provisioner.ReadWriteOnce:    pluginv1.AccessMode_ACCESS_MODE_RWO,
	provisioner.ReadOnlyMany:     pluginv1.AccessMode_ACCESS_MODE_ROX,
	provisioner.ReadWriteMany:    pluginv1.AccessMode_ACCESS_MODE_RWX,
	provisioner.ReadWriteOncePod: pluginv1.AccessMode_ACCESS_MODE_RWOP,
}

func toWire(modes []provisioner.AccessMode) ([]pluginv1.AccessMode, error) {
	var out []pluginv1.AccessMode
	for _, m := range modes {
		w, ok := wireModes[m]
		if !ok {
			return nil, fmt.Errorf("access mode %q is not known to vendor plugins: %w", m, provisioner.ErrInvalid)
		}
		out = append(out, w)
	}
	return out, nil
}

func fromWire(modes []pluginv1.AccessMode) ([]provisioner.AccessMode, error) {
	var out []provisioner.AccessMode
next:
	for _, w := range modes {
		if w == pluginv1.AccessMode_ACCESS_MODE_UNSPECIFIED {
			continue // says nothing
		}
		for m, known := range wireModes {
			if known == w {
				out = append(out, m)
				continue next
			}
		}
		return nil, fmt.Errorf("access mode %s is not one to use a volume in: %w", w, provisioner.ErrInvalid)
	}
	return out, nil
}

// modeOf reads a volume_mode; empty means Filesystem, says the plugin API.
func modeOf(s string) (provisioner.VolumeMode, error) {
	switch m := provisioner.VolumeMode(s); m {
	case "":
		return provisioner.Filesystem, nil
	case provisioner.Filesystem, provisioner.Block:
		return m, nil
	}
	return "", fmt.Errorf("volume mode %q is not Block or Filesystem: %w", s, provisioner.ErrInvalid)
}
