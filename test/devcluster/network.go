package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// ip runs commands of ip(8), in the network namespace of a process or, for 0,
// in the one of this machine.
func ip(ctx context.Context, pid int, commands ...string) error {
	words := []string{"ip", "-batch", "-"}
	if pid != 0 {
		words = append([]string{"nsenter", "-t", fmt.Sprint(pid), "-n"}, words...)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("configure the bed's network with ip (%s): %w: %s", strings.Join(commands, "; "), err, strings.TrimSpace(output.String()))
	}
	return nil
}

// mac is the hardware address that goes with an IPv4 address. It is fixed, since
// the others remember the one of a machine over its power-off, and since a
// bridge left alone changes its own with every new port.
func mac(ip string) string {
	b := net.ParseIP(ip).To4()
	return fmt.Sprintf("02:4d:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

// connectHub makes the bridge and the one device by which programs of this
// machine reach the bed. That device goes when the hub goes.
func connectHub(ctx context.Context, hub int) error {
	err := ip(ctx, hub,
		"link set lo up",
		"link add br0 address "+mac(layout.HubIP)+" type bridge",
		"addr add "+layout.HubIP+"/24 dev br0",
		"link set br0 up")
	if err != nil {
		return err
	}
	err = ip(ctx, 0,
		fmt.Sprintf("link add %s type veth peer name root0 netns %d", layout.RootLink, hub),
		fmt.Sprintf("addr add %s/24 dev %s", layout.RootIP, layout.RootLink),
		fmt.Sprintf("link set %s up", layout.RootLink))
	if err != nil {
		return err
	}
	return ip(ctx, hub, "link set root0 master br0 up")
}

// connect plugs a machine into the hub's bridge and tells everyone, programs of
// this machine too, where its pods are.
func (c *Cluster) connect(ctx context.Context, b box, pid, hub int) error {
	port := "p-" + b.name
	// After a power-off the kernel removes the old port a little later.
	_ = ip(ctx, hub, "link del "+port)
	err := ip(ctx, hub,
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", port, mac(b.ip), pid),
		fmt.Sprintf("link set %s master br0 up", port))
	if err != nil {
		return err
	}
	commands := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 dev eth0", b.ip),
		"link set eth0 up",
		"route add default via " + layout.HubIP,
	}
	for _, other := range c.kubelets() {
		if other.name != b.name {
			commands = append(commands, fmt.Sprintf("route add %s via %s", other.pods, other.ip))
		}
	}
	if err := ip(ctx, pid, commands...); err != nil {
		return err
	}
	if b.pods == "" {
		return nil
	}
	route := fmt.Sprintf("route replace %s via %s", b.pods, b.ip)
	return errors.Join(ip(ctx, hub, route), ip(ctx, 0, route+" dev "+layout.RootLink))
}
