package remote

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
	"unicode"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// The keys of NFS-CSI's volume context, in whatever case.
const (
	KeyServer       = "server"
	KeyShare        = "share"
	KeySubDir       = "subdir"
	KeyMountOptions = "mountoptions"
)

// share is what is mounted.
type share struct {
	// source is server:/path as mount takes it.
	source string
	// options are separated by commas, as they came.
	options string
}

// shareOf reads which directory of which server a volume is.
func shareOf(volume map[string]string) (share, error) {
	given := map[string]string{}
	for k, v := range volume {
		key := strings.ToLower(k)
		if have, twice := given[key]; twice && have != v {
			return share{}, fmt.Errorf("the volume context has %s twice, %q and %q: %w", key, have, v, provisioner.ErrInvalid)
		}
		given[key] = v
	}
	for _, key := range []string{KeyServer, KeyShare} {
		if given[key] == "" {
			return share{}, fmt.Errorf("the volume context has no %s: was the volume made by NFS-CSI? %w", key, provisioner.ErrInvalid)
		}
	}
	for _, key := range []string{KeyServer, KeyShare, KeySubDir, KeyMountOptions} {
		if strings.ContainsFunc(given[key], unicode.IsControl) || strings.HasPrefix(given[key], "-") {
			return share{}, fmt.Errorf("%s %q of the volume context is nothing to mount: %w", key, given[key], provisioner.ErrInvalid)
		}
	}
	for _, part := range strings.Split(given[KeyShare]+"/"+given[KeySubDir], "/") {
		if part == ".." {
			return share{}, fmt.Errorf("%q in share %q leads out of it: %w", given[KeySubDir], given[KeyShare], provisioner.ErrInvalid)
		}
	}
	server := given[KeyServer]
	if a, err := netip.ParseAddr(server); err == nil && a.Is6() {
		server = "[" + server + "]"
	}
	return share{source: server + ":" + path.Join("/", given[KeyShare], given[KeySubDir]), options: given[KeyMountOptions]}, nil
}
