package csictl

import (
	"context"
	"io"
	"strconv"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
)

func (s *session) node() []*cobra.Command {
	return []*cobra.Command{
		s.nodeInfo(), s.nodeStage(), s.nodeUnstage(), s.nodePublish(), s.nodeUnpublish(), s.nodeStats(), s.nodeExpand(),
		s.verb("get-capabilities", "What the node service can do", cobra.NoArgs, nil,
			func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
				r, err := csispec.NewNodeClient(conn).NodeGetCapabilities(ctx, &csispec.NodeGetCapabilitiesRequest{})
				for _, c := range r.GetCapabilities() {
					line(out, c.GetRpc().GetType().String())
				}
				return err
			}),
	}
}

func (s *session) nodeInfo() *cobra.Command {
	var long bool
	flags := func(fs *pflag.FlagSet) {
		fs.BoolVarP(&long, "long", "l", false, "print how many volumes it may have, 0 for any number, and its topology too")
	}
	return s.verb("get-info", "ID of the node", cobra.NoArgs, flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
			r, err := csispec.NewNodeClient(conn).NodeGetInfo(ctx, &csispec.NodeGetInfoRequest{})
			if err != nil {
				return err
			}
			columns := []string{r.GetNodeId()}
			if long {
				columns = append(append(columns, strconv.FormatInt(r.GetMaxVolumesPerNode(), 10)), pairs(r.GetAccessibleTopology().GetSegments())...)
			}
			line(out, columns...)
			return nil
		})
}

// use is what staging and publishing are told.
type use struct {
	caps            capabilities
	staging, target string
	readOnly        bool
	volume, publish carried
}

func (u *use) bind(fs *pflag.FlagSet) {
	u.caps.bind(fs)
	bindStaging(fs, &u.staging)
	u.volume.bind(fs, "vol-context", "volume context")
	u.publish.bind(fs, "pub-context", "publish context")
}

func bindStaging(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "staging-target-path", "", "directory where the volume is staged")
}

func bindTarget(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "target-path", "", "where the volume is published")
}

func (u *use) load() (c *csispec.VolumeCapability, volume, publish map[string]string, err error) {
	if c, err = u.caps.one(); err != nil {
		return nil, nil, nil, err
	}
	if volume, err = u.volume.load(); err != nil {
		return nil, nil, nil, err
	}
	publish, err = u.publish.load()
	return c, volume, publish, err
}

func (s *session) nodeStage() *cobra.Command {
	var u use
	return s.verb("stage ID", "Make an attached volume usable on the machine", cobra.ExactArgs(1), u.bind,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			c, volume, publish, err := u.load()
			if err != nil {
				return err
			}
			return each(id, out, func(id string) error {
				_, err := csispec.NewNodeClient(conn).NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
					VolumeId: id, StagingTargetPath: u.staging, VolumeCapability: c, VolumeContext: volume, PublishContext: publish,
				})
				return err
			})
		})
}

func (s *session) nodeUnstage() *cobra.Command {
	var staging string
	return s.verb("unstage ID", "Undo stage", cobra.ExactArgs(1), func(fs *pflag.FlagSet) { bindStaging(fs, &staging) },
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			return each(id, out, func(id string) error {
				_, err := csispec.NewNodeClient(conn).NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
				return err
			})
		})
}

func (s *session) nodePublish() *cobra.Command {
	var u use
	flags := func(fs *pflag.FlagSet) {
		u.bind(fs)
		bindTarget(fs, &u.target)
		fs.BoolVar(&u.readOnly, "read-only", false, "only to read")
	}
	return s.verb("publish ID", "Show a volume at a path", cobra.ExactArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			c, volume, publish, err := u.load()
			if err != nil {
				return err
			}
			return each(id, out, func(id string) error {
				_, err := csispec.NewNodeClient(conn).NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{
					VolumeId: id, StagingTargetPath: u.staging, TargetPath: u.target, Readonly: u.readOnly,
					VolumeCapability: c, VolumeContext: volume, PublishContext: publish,
				})
				return err
			})
		})
}

func (s *session) nodeUnpublish() *cobra.Command {
	var target string
	return s.verb("unpublish ID", "Undo publish", cobra.ExactArgs(1), func(fs *pflag.FlagSet) { bindTarget(fs, &target) },
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			return each(id, out, func(id string) error {
				_, err := csispec.NewNodeClient(conn).NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
				return err
			})
		})
}

func bindPath(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "volume-path", "", "where the volume is published")
}

func (s *session) nodeStats() *cobra.Command {
	var path string
	return s.verb("stats ID", "How full a volume is: unit, available, total, used", cobra.ExactArgs(1), func(fs *pflag.FlagSet) { bindPath(fs, &path) },
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			r, err := csispec.NewNodeClient(conn).NodeGetVolumeStats(ctx, &csispec.NodeGetVolumeStatsRequest{VolumeId: id[0], VolumePath: path})
			for _, u := range r.GetUsage() {
				line(out, id[0], strings.ToLower(u.GetUnit().String()), strconv.FormatInt(u.GetAvailable(), 10),
					strconv.FormatInt(u.GetTotal(), 10), strconv.FormatInt(u.GetUsed(), 10))
			}
			return err
		})
}

func (s *session) nodeExpand() *cobra.Command {
	var (
		path string
		room size
		caps capabilities
	)
	flags := func(fs *pflag.FlagSet) { bindPath(fs, &path); room.bind(fs); caps.bind(fs) }
	return s.verb("expand ID", "Use the room of a volume that was made larger", cobra.ExactArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, id []string) error {
			c, err := caps.one()
			if err != nil {
				return err
			}
			r, err := csispec.NewNodeClient(conn).NodeExpandVolume(ctx, &csispec.NodeExpandVolumeRequest{
				VolumeId: id[0], VolumePath: path, CapacityRange: room.capacity(), VolumeCapability: c,
			})
			if err == nil {
				line(out, id[0], strconv.FormatInt(r.GetCapacityBytes(), 10))
			}
			return err
		})
}
