package vendorplugin

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// page returns up to limit devices (0: all) that come after the key.
func page(all []provisioner.Device, after string, limit int) *pluginv1.ListDevicesResponse {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b provisioner.Device) int { return cmp.Compare(key(a), key(b)) })
	resp := &pluginv1.ListDevicesResponse{}
	last := ""
	for _, d := range all {
		if after != "" && key(d) <= after {
			continue
		}
		if limit > 0 && len(resp.Entries) == limit {
			resp.NextToken = tokenOf(last)
			break
		}
		resp.Entries = append(resp.Entries, &pluginv1.ListDevicesResponse_Entry{VolumeId: d.VolumeID, DeviceName: d.Name})
		last = key(d)
	}
	return resp
}

// tokenMark begins what is inside a token, so that one that was not handed out
// is told from one that was.
const tokenMark = "after\x00"

func key(d provisioner.Device) string { return d.VolumeID + "\x00" + d.Name }

func tokenOf(key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(tokenMark + key))
}

func parseToken(token string) (after string, err error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	after, ok := strings.CutPrefix(string(raw), tokenMark)
	if err != nil || !ok || !strings.Contains(after, "\x00") {
		return "", fmt.Errorf("token %q: %w", token, errBadToken)
	}
	return after, nil
}
