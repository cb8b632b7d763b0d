package hostprobe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// zonePeriod is how soon it is noticed that an interface has been made anew.
const zonePeriod = time.Second

// numbered is an address in which the zone of IPv6, if it has one, is the number that the
// interface has now. Package net remembers the numbers of names for a minute, and an interface
// that is made anew, as that of tmfifo is with each boot of its DPU, has another.
func numbered(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q: give address:port: %w", address, err)
	}
	ip, zone, found := strings.Cut(host, "%")
	if _, err := strconv.Atoi(zone); !found || err == nil {
		return address, nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return "", fmt.Errorf("network interface %s: %w", zone, err)
	}
	return net.JoinHostPort(ip+"%"+strconv.Itoa(i.Index), port), nil
}

// whileNumbered is a context that ends when address has another number than it has in now.
func whileNumbered(ctx context.Context, address, now string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if address == now {
		return ctx, cancel
	}
	go func() {
		ticker := time.NewTicker(zonePeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if again, err := numbered(address); err != nil || again != now {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}
