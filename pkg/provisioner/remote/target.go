package remote

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The keys of SPDK-CSI's volume context.
const (
	KeyTargetType = "targetType"
	KeyTargetAddr = "targetAddr"
	KeyTargetPort = "targetPort"
	KeyNQN        = "nqn"
)

// defaultPort of NVMe over Fabrics, IANA.
const defaultPort = "4420"

// targetOf reads which subsystem a volume is. SNAP's own initiator does NVMe/TCP
// under another name than SPDK's.
func targetOf(volume map[string]string) (snaprpc.TransportID, error) {
	t := snaprpc.TransportID{
		TrType: volume[KeyTargetType], AdrFam: "ipv4", TrAddr: volume[KeyTargetAddr],
		TrSvcID: cmp.Or(volume[KeyTargetPort], defaultPort), SubNQN: volume[KeyNQN],
	}
	for key, value := range map[string]string{KeyTargetType: t.TrType, KeyTargetAddr: t.TrAddr, KeyNQN: t.SubNQN} {
		if value == "" {
			return t, fmt.Errorf("the volume context has no %s: was the volume made by SPDK-CSI? %w", key, provisioner.ErrInvalid)
		}
	}
	if _, err := strconv.ParseUint(t.TrSvcID, 10, 16); err != nil {
		return t, fmt.Errorf("%s %q of the volume context is no port: %w", KeyTargetPort, t.TrSvcID, provisioner.ErrInvalid)
	}
	if strings.EqualFold(t.TrType, "tcp") {
		t.TrType = snaprpc.TransportNVDATCP
	}
	if a, err := netip.ParseAddr(t.TrAddr); err == nil && a.Is6() && !a.Is4In6() {
		t.AdrFam = "ipv6"
	}
	return t, nil
}

const (
	// controllerPrefix begins the name of every controller that is made here.
	controllerPrefix = "nvme_"
	// maxController leaves room for "n<nsid>": SNAP copies the names of bdevs
	// into fields of 64 bytes.
	maxController = 58
	// hashMark begins what stands for a volume that cannot be named as it is.
	hashMark = "_"
)

// plain are the volumes whose name is safe in that of a controller.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// controllerOf returns the name of the controller that is made for a volume,
// NVIDIA's wherever that fits.
func controllerOf(volumeID string) string {
	if limit := maxController - len(controllerPrefix); len(volumeID) <= limit && plain.MatchString(volumeID) {
		return controllerPrefix + volumeID
	}
	sum := sha256.Sum256([]byte(volumeID))
	return controllerPrefix + hashMark + hex.EncodeToString(sum[:16])
}

// volumeOf is controllerOf read backwards; empty if the name does not tell.
func volumeOf(controller string) string {
	id, ours := strings.CutPrefix(controller, controllerPrefix)
	if !ours || len(controller) > maxController || !plain.MatchString(id) {
		return ""
	}
	return id
}

// namespaceOf is the bdev of a controller's namespace.
var namespaceOf = regexp.MustCompile(`^(.+)n[0-9]+$`)

// ofController returns the controller in the name of a bdev.
func ofController(bdev string) string {
	if m := namespaceOf.FindStringSubmatch(bdev); m != nil {
		return m[1]
	}
	return ""
}
