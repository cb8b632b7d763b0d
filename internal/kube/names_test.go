package kube

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("v", 253)
	for _, tc := range []struct{ name, got, want string }{
		{"claim", PVCName("vol"), "vol-pvc"},
		{"longest claim", PVCName(long[:249]), long[:249] + "-pvc"},
		{"too long claim", PVCName(long[:250]), "?-pvc"},
		{"attachment", AttachmentName("node", "vol"), "node-vol"},
		{"longest attachment", AttachmentName("n", long[:251]), "n-" + long[:251]},
		{"too long attachment", AttachmentName("n", long[:252]), "va-?"},
		{"object", ObjectName("pvc-1"), "pvc-1"},
		{"longest object", ObjectName(long), long},
		{"object with capitals", ObjectName("PVC"), "v-?"},
		{"object with a slash", ObjectName("a/b"), "v-?"},
		{"object too long", ObjectName(long + "v"), "v-?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if bad := validation.IsDNS1123Subdomain(tc.got); len(bad) > 0 {
				t.Errorf("%q is no name: %v", tc.got, bad)
			}
			want := regexp.MustCompile("^" + strings.Replace(tc.want, "?", "[0-9a-f]{32}", 1) + "$")
			if !want.MatchString(tc.got) {
				t.Errorf("got %q, want %q, where ? is a hash", tc.got, tc.want)
			}
		})
	}
	if PVCName(long[:250]) == PVCName(long[:251]) || AttachmentName("n", long) == AttachmentName("m", long) ||
		AttachmentName("n", long) == AttachmentName("n", long[:252]) {
		t.Error("two names are hashed to one")
	}
}
