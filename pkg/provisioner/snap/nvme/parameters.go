package nvme

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// chosenHere are the parameters of nvme_controller_create that name the
// function, the subsystem and the state: a StorageClass may not set them.
var chosenHere = []string{"nqn", "pci_bdf", "vuid", "pf_id", "vf_id", "ctrl", "ctrl_id", "suspended", "admin_only"}

// convert turns the text of a StorageClass into what SNAP expects: booleans
// and integers as such, the rest as text. ErrInvalid for one of chosenHere.
func convert(parameters map[string]string) (map[string]any, error) {
	out := make(map[string]any, len(parameters))
	for key, text := range parameters {
		if slices.Contains(chosenHere, key) {
			return nil, fmt.Errorf("parameter %q cannot be set, it is chosen for each volume: %w", key, provisioner.ErrInvalid)
		}
		out[key] = convertOne(text)
	}
	return out, nil
}

func convertOne(text string) any {
	switch text {
	case "true", "True":
		return true
	case "false", "False":
		return false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func names(parameters map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(parameters)), ", ")
}
