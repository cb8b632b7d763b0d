package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestShareOf(t *testing.T) {
	for _, tc := range []struct {
		name    string
		context map[string]string
		want    share
		says    string
	}{
		{name: "share", context: map[string]string{"server": "nas", "share": "/exports"}, want: share{source: "nas:/exports"}},
		{name: "as NFS-CSI writes it", context: map[string]string{"server": "nas", "share": "/exports/", "subDir": "pvc-1", "mountOptions": "nfsvers=4.1,hard", "csi.storage.k8s.io/pv/name": "pvc-1"}, want: share{"nas:/exports/pvc-1", "nfsvers=4.1,hard"}},
		{name: "no slash", context: map[string]string{"SERVER": "nas", "SHARE": "exports"}, want: share{source: "nas:/exports"}},
		{name: "IPv6", context: map[string]string{"server": "2001:db8::1", "share": "/x"}, want: share{source: "[2001:db8::1]:/x"}},
		{name: "same key twice, same words", context: map[string]string{"server": "nas", "Server": "nas", "share": "/x"}, want: share{source: "nas:/x"}},
		{name: "same key twice", context: map[string]string{"server": "nas", "Server": "nas2", "share": "/x"}, says: "twice"},
		{name: "no server", context: map[string]string{"share": "/x"}, says: "no server"},
		{name: "no share", context: map[string]string{"server": "nas"}, says: "no share"},
		{name: "nothing", says: "no server"},
		{name: "out of the share", context: map[string]string{"server": "nas", "share": "/x", "subdir": "a/../../y"}, says: "leads out"},
		{name: "an option in place of a server", context: map[string]string{"server": "-osuid", "share": "/x"}, says: "nothing to mount"},
		{name: "a line break", context: map[string]string{"server": "nas", "share": "/x\n/y"}, says: "nothing to mount"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := shareOf(tc.context)
			if tc.says != "" {
				if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("got %+v, %v; want %q", got, err, tc.says)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func FuzzShareOf(f *testing.F) {
	f.Add("nas", "/x", "a/b", "ro")
	f.Add("::1", "..", "", "-o")
	f.Fuzz(func(t *testing.T, server, path, subdir, options string) {
		got, err := shareOf(map[string]string{"server": server, "share": path, "subdir": subdir, "mountoptions": options})
		if err == nil && (strings.HasPrefix(got.source, "-") || strings.HasSuffix(got.source, "/..") || strings.Contains(got.source, "/../")) {
			t.Fatalf("mounts %q", got.source)
		}
		if err != nil && !errors.Is(err, provisioner.ErrInvalid) {
			t.Fatal(err)
		}
	})
}

// commands keeps what was run and fails what fail says.
type commands struct {
	ran  []string
	fail map[string]error
}

func (c *commands) Run(_ context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	c.ran = append(c.ran, line)
	return "", c.fail[line]
}

func TestKernelMounts(t *testing.T) {
	boom := errors.New("busy")
	for _, tc := range []struct {
		name    string
		do      func(KernelMounts) error
		fail    map[string]error
		want    []string
		refused bool
	}{
		{name: "mount", do: func(k KernelMounts) error { return k.Mount(t.Context(), "nas:/x", "/m", "") }, want: []string{"mount -t nfs nas:/x /m"}},
		{name: "mount with options", do: func(k KernelMounts) error { return k.Mount(t.Context(), "nas:/x", "/m", "ro,soft") }, want: []string{"mount -t nfs -o ro,soft nas:/x /m"}},
		{name: "unmount", do: func(k KernelMounts) error { return k.Unmount(t.Context(), "/m") }, want: []string{"umount /m"}},
		{
			name: "unmount by force", do: func(k KernelMounts) error { return k.Unmount(t.Context(), "/m") },
			fail: map[string]error{"umount /m": boom}, want: []string{"umount /m", "umount -f /m"},
		},
		{
			name: "unmount in vain", do: func(k KernelMounts) error { return k.Unmount(t.Context(), "/m") },
			fail: map[string]error{"umount /m": boom, "umount -f /m": boom}, want: []string{"umount /m", "umount -f /m"}, refused: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &commands{fail: tc.fail}
			err := tc.do(KernelMounts{Runner: c})
			if diff := cmp.Diff(tc.want, c.ran); diff != "" || (err != nil) != tc.refused {
				t.Fatalf("%v %s", err, diff)
			}
		})
	}
	if at, err := (KernelMounts{}).At("/proc"); err != nil || at != "proc" {
		t.Errorf("on /proc is %q, %v", at, err)
	}
	if at, err := (KernelMounts{}).At("/proc/no-such-mount"); err != nil || at != "" {
		t.Errorf("nothing is mounted, and yet %s, %v", fmt.Sprintf("%q", at), err)
	}
}
