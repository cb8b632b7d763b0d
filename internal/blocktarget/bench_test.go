package blocktarget

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// benchDevice is a device of a server of its own, which records nothing.
func benchDevice(b *testing.B) (*Device, func()) {
	b.Helper()
	r := &rights{dir: b.TempDir(), tokens: map[[2]string]string{}}
	file := filepath.Join(r.dir, "v.img")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, volumeSize)); err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(Options{Grants: r}).Serve(ctx, l) }()
	d, err := OpenDevice(ctx, DeviceOptions{Address: l.Addr().String(), Export: r.give("v", "dpu-1", "t")})
	if err != nil {
		b.Fatal(err)
	}
	return d, func() {
		_ = d.Close()
		cancel()
		<-done
	}
}
