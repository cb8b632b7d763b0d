package kube

import (
	"encoding/hex"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxName is the longest name that an object may have (RFC 1123 subdomain).
const maxName = 253

// PVCName is the name of the vendor's PersistentVolumeClaim behind a volume:
// "<volume>-pvc", or the hex FNV-128 of the name where that is too long. The
// rule is DPF's.
func PVCName(volume string) string {
	if name := volume + "-pvc"; len(name) <= maxName {
		return name
	}
	return fnv128(volume) + "-pvc"
}

// AttachmentName is the name of the attachment of a volume to a node:
// "<node>-<volume>", or "va-" and the hex FNV-128 of both. The rule is DPF's.
func AttachmentName(node, volume string) string {
	if name := node + "-" + volume; len(name) <= maxName {
		return name
	}
	return "va-" + fnv128(node, volume)
}

// ObjectName is a name that an object may have for a name that CSI may give
// (any characters): the name itself where that is allowed, or "v-" and the hex
// FNV-128 of it.
func ObjectName(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	return "v-" + fnv128(name)
}

func fnv128(parts ...string) string {
	h := fnv.New128()
	_, _ = h.Write([]byte(strings.Join(parts, "/")))
	return hex.EncodeToString(h.Sum(nil))
}

// LabelValue is a label value for a name of any length: the name itself where a
// label may have it, or the hex FNV-128 of it.
func LabelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	return fnv128(name)
}

// HashedName is the hex FNV-128 of a name, for where there is no room for it.
func HashedName(name string) string { return fnv128(name) }

// LabelKey is a label key with that prefix for a name of any length: the prefix
// and the hex FNV-128 of the name.
func LabelKey(prefix, name string) string { return prefix + "/" + fnv128(name) }
