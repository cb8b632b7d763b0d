package vendorplugin

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The bounds of what a plugin says of itself: of the name by the plugin API, of the rest
// as CSI bounds the same fields (spec "Size Limits").
const (
	maxName     = 63
	maxVersion  = 128
	maxManifest = 4 << 10
)

// Info says who a plugin is.
type Info struct {
	// Name in domain notation, at most 63 characters, and Version, at most 128 bytes.
	Name, Version string
	// Manifest is opaque; all keys and values have at most 4 KiB together.
	Manifest map[string]string
}

// faults say what of it the plugin API does not allow.
func (i Info) faults() (out []string) {
	switch {
	case i.Name == "":
		out = append(out, "it gives itself no name")
	case len(i.Name) > maxName:
		out = append(out, fmt.Sprintf("its name %s has %d characters, and may have %d", i.Name, len(i.Name), maxName))
	case len(validation.IsDNS1123Subdomain(strings.ToLower(i.Name))) > 0:
		out = append(out, fmt.Sprintf("its name %q is no domain name", i.Name))
	}
	switch {
	case i.Version == "":
		out = append(out, "it tells no version")
	case len(i.Version) > maxVersion:
		out = append(out, fmt.Sprintf("its version has %d bytes, and may have %d", len(i.Version), maxVersion))
	}
	size := 0
	for key, value := range i.Manifest {
		size += len(key) + len(value)
	}
	if size > maxManifest {
		out = append(out, fmt.Sprintf("its manifest has %d bytes, and may have %d", size, maxManifest))
	}
	return out
}
