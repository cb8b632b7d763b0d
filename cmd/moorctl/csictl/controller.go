package csictl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
)

func (s *session) controller() []*cobra.Command {
	return []*cobra.Command{
		s.controllerNew(), s.controllerPublish(), s.controllerUnpublish(), s.controllerValidate(), s.controllerExpand(),
		s.verb("del ID...", "Remove volumes", cobra.MinimumNArgs(1), nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, ids []string) error {
				return each(ids, out, func(id string) error {
					_, err := csispec.NewControllerClient(conn).DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: id})
					return err
				})
			}),
		s.verb("get-capabilities", "What the controller can do", cobra.NoArgs, nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
				r, err := csispec.NewControllerClient(conn).ControllerGetCapabilities(ctx, &csispec.ControllerGetCapabilitiesRequest{})
				for _, c := range r.GetCapabilities() {
					line(out, c.GetRpc().GetType().String())
				}
				return err
			}),
		s.verb("get-capacity", "How many bytes there are for new volumes", cobra.NoArgs, nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
				r, err := csispec.NewControllerClient(conn).GetCapacity(ctx, &csispec.GetCapacityRequest{})
				if err == nil {
					line(out, strconv.FormatInt(r.GetAvailableCapacity(), 10))
				}
				return err
			}),
		s.controllerList(), s.snapshotNew(), s.snapshotDelete(), s.snapshotList(),
	}
}

func (s *session) controllerNew() *cobra.Command {
	var (
		caps   capabilities
		room   size
		params map[string]string
		volume carried
		long   bool
	)
	flags := func(fs *pflag.FlagSet) {
		caps.bind(fs)
		room.bind(fs)
		fs.StringToStringVar(&params, "params", nil, "parameters of the StorageClass: key=value, may be repeated")
		volume.bindFile(fs, "vol-context", "file to write the volume context to")
		fs.BoolVarP(&long, "long", "l", false, "print size and context too")
	}
	return s.verb("new NAME...", "Make volumes", cobra.MinimumNArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, names []string) error {
			wanted, err := caps.all()
			if err != nil {
				return err
			}
			if volume.file != "" && len(names) > 1 {
				return errors.New("--vol-context-file holds the context of one volume: make one")
			}
			for _, name := range names {
				r, err := csispec.NewControllerClient(conn).CreateVolume(ctx, &csispec.CreateVolumeRequest{
					Name: name, VolumeCapabilities: wanted, CapacityRange: room.capacity(), Parameters: params,
				})
				if err != nil {
					return err
				}
				columns := []string{r.GetVolume().GetVolumeId()}
				if long {
					columns = append(append(columns, strconv.FormatInt(r.GetVolume().GetCapacityBytes(), 10)), pairs(r.GetVolume().GetVolumeContext())...)
				}
				line(out, columns...)
				if err := volume.save(r.GetVolume().GetVolumeContext()); err != nil {
					return err
				}
			}
			return nil
		})
}

func (s *session) controllerPublish() *cobra.Command {
	var (
		caps            capabilities
		node            string
		readOnly        bool
		volume, publish carried
	)
	flags := func(fs *pflag.FlagSet) {
		caps.bind(fs)
		fs.StringVar(&node, "node-id", "", "node that is to use the volume, as node get-info tells it")
		fs.BoolVar(&readOnly, "read-only", false, "only to read")
		volume.bind(fs, "vol-context", "volume context")
		publish.bindFile(fs, "pub-context", "file to write the publish context to, which may hold secrets; without it the context is printed")
	}
	return s.verb("publish ID", "Attach a volume to a node", cobra.ExactArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			c, err := caps.one()
			if err != nil {
				return err
			}
			given, err := volume.load()
			if err != nil {
				return err
			}
			r, err := csispec.NewControllerClient(conn).ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
				VolumeId: id[0], NodeId: node, VolumeCapability: c, Readonly: readOnly, VolumeContext: given,
			})
			if err != nil {
				return err
			}
			columns := id
			if publish.file == "" {
				columns = append(columns, pairs(r.GetPublishContext())...)
			}
			line(out, columns...)
			return publish.save(r.GetPublishContext())
		})
}

func (s *session) controllerUnpublish() *cobra.Command {
	var node string
	flags := func(fs *pflag.FlagSet) {
		fs.StringVar(&node, "node-id", "", "node that no longer uses them; empty: every node")
	}
	return s.verb("unpublish ID...", "Detach volumes from a node", cobra.MinimumNArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, ids []string) error {
			return each(ids, out, func(id string) error {
				_, err := csispec.NewControllerClient(conn).ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
				return err
			})
		})
}

func (s *session) controllerValidate() *cobra.Command {
	var (
		caps   capabilities
		volume carried
		params map[string]string
	)
	flags := func(fs *pflag.FlagSet) {
		caps.bind(fs)
		volume.bind(fs, "vol-context", "volume context")
		fs.StringToStringVar(&params, "params", nil, "parameters it was made with: key=value, may be repeated")
	}
	return s.verb("validate-volume-capabilities ID...", "Whether volumes can be used in a way", cobra.MinimumNArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, ids []string) error {
			wanted, err := caps.all()
			if err != nil {
				return err
			}
			given, err := volume.load()
			if err != nil {
				return err
			}
			for _, id := range ids {
				r, err := csispec.NewControllerClient(conn).ValidateVolumeCapabilities(ctx, &csispec.ValidateVolumeCapabilitiesRequest{
					VolumeId: id, VolumeCapabilities: wanted, VolumeContext: given, Parameters: params,
				})
				if err != nil {
					return err
				}
				columns := []string{id, strconv.FormatBool(r.GetConfirmed() != nil)}
				if r.GetMessage() != "" {
					columns = append(columns, r.GetMessage())
				}
				line(out, columns...)
			}
			return nil
		})
}

func (s *session) controllerExpand() *cobra.Command {
	var (
		caps capabilities
		room size
	)
	flags := func(fs *pflag.FlagSet) { caps.bind(fs); room.bind(fs) }
	return s.verb("expand ID", "Make a volume larger", cobra.ExactArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			c, err := caps.one()
			if err != nil {
				return err
			}
			r, err := csispec.NewControllerClient(conn).ControllerExpandVolume(ctx, &csispec.ControllerExpandVolumeRequest{
				VolumeId: id[0], VolumeCapability: c, CapacityRange: room.capacity(),
			})
			if err == nil {
				line(out, id[0], strconv.FormatInt(r.GetCapacityBytes(), 10), fmt.Sprintf("node-expansion=%t", r.GetNodeExpansionRequired()))
			}
			return err
		})
}
