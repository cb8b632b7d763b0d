package blocktarget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// BenchmarkWrite prints what a target does on this machine over loopback.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{4 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			d, done := benchDevice(b)
			defer done()
			b.SetBytes(int64(size))
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				data := make([]byte, size)
				for pb.Next() {
					if _, err := d.WriteAt(data, rand.Int64N(volumeSize-int64(size))); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
