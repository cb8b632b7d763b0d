package dpf

import (
	"fmt"
	"strings"
)

// AttachMode says who asks for a volume on a node. It is chosen when Moor is
// installed, and it is a flag (pflag.Value).
type AttachMode string

// The attach modes.
const (
	// AttachController: Kubernetes' VolumeAttachment, through the CSI
	// controller, as DPF does it.
	AttachController AttachMode = "Controller"
	// AttachNode: the node plugin, when it stages the volume.
	AttachNode AttachMode = "Node"
)

// String is the mode's name.
func (m *AttachMode) String() string { return string(*m) }

// Type is how pflag names the type of the flag's value.
func (*AttachMode) Type() string { return "mode" }

// Set takes the name of a mode, in capitals or not.
func (m *AttachMode) Set(value string) error {
	for _, mode := range []AttachMode{AttachController, AttachNode} {
		if strings.EqualFold(value, string(mode)) {
			*m = mode
			return nil
		}
	}
	return fmt.Errorf("attach mode %q: %s or %s is wanted", value, AttachController, AttachNode)
}
