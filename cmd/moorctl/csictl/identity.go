package csictl

import (
	"context"
	"io"
	"strconv"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
)

func (s *session) identity() []*cobra.Command {
	return []*cobra.Command{
		s.verb("plugin-info", "Name and version of the driver", cobra.NoArgs, nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
				r, err := csispec.NewIdentityClient(conn).GetPluginInfo(ctx, &csispec.GetPluginInfoRequest{})
				if err == nil {
					line(out, append([]string{strconv.Quote(r.GetName()), strconv.Quote(r.GetVendorVersion())}, pairs(r.GetManifest())...)...)
				}
				return err
			}),
		s.verb("plugin-capabilities", "What the driver has", cobra.NoArgs, nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
				r, err := csispec.NewIdentityClient(conn).GetPluginCapabilities(ctx, &csispec.GetPluginCapabilitiesRequest{})
				for _, c := range r.GetCapabilities() {
					switch {
					case c.GetService() != nil:
						line(out, c.GetService().GetType().String())
					case c.GetVolumeExpansion() != nil:
						line(out, "VOLUME_EXPANSION_"+c.GetVolumeExpansion().GetType().String())
					}
				}
				return err
			}),
		s.verb("probe", "Whether the driver is ready", cobra.NoArgs, nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
				r, err := csispec.NewIdentityClient(conn).Probe(ctx, &csispec.ProbeRequest{})
				if err == nil { // no answer means ready, CSI spec, Probe
					line(out, strconv.FormatBool(r.GetReady() == nil || r.GetReady().GetValue()))
				}
				return err
			}),
	}
}
