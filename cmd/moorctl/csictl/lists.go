package csictl

import (
	"context"
	"io"
	"strconv"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
)

// paged calls fetch from the beginning to the end of a list.
func paged(fetch func(token string) (next string, err error)) error {
	for token := ""; ; {
		next, err := fetch(token)
		if err != nil || next == "" {
			return err
		}
		token = next
	}
}

func pageSize(fs *pflag.FlagSet, entries *int32) {
	fs.Int32Var(entries, "max-entries", 0, "how many to ask for at a time; 0: as many as the driver likes")
}

func (s *session) controllerList() *cobra.Command {
	var entries int32
	return s.verb("list-volumes", "Volumes: ID, bytes, nodes that have it", cobra.NoArgs, func(fs *pflag.FlagSet) { pageSize(fs, &entries) },
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
			return paged(func(token string) (string, error) {
				r, err := csispec.NewControllerClient(conn).ListVolumes(ctx, &csispec.ListVolumesRequest{MaxEntries: entries, StartingToken: token})
				for _, e := range r.GetEntries() {
					columns := []string{e.GetVolume().GetVolumeId(), strconv.FormatInt(e.GetVolume().GetCapacityBytes(), 10)}
					line(out, append(columns, e.GetStatus().GetPublishedNodeIds()...)...)
				}
				return r.GetNextToken(), err
			})
		})
}

func (s *session) snapshotNew() *cobra.Command {
	var (
		source string
		params map[string]string
	)
	flags := func(fs *pflag.FlagSet) {
		fs.StringVar(&source, "source-volume", "", "volume that it is taken of")
		fs.StringToStringVar(&params, "params", nil, "parameters of the VolumeSnapshotClass: key=value, may be repeated")
	}
	return s.verb("create-snapshot NAME", "Take a snapshot: ID, bytes, whether it is ready", cobra.ExactArgs(1), flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, name []string) error {
			r, err := csispec.NewControllerClient(conn).CreateSnapshot(ctx, &csispec.CreateSnapshotRequest{Name: name[0], SourceVolumeId: source, Parameters: params})
			if err == nil {
				line(out, snapshotColumns(r.GetSnapshot())...)
			}
			return err
		})
}

func snapshotColumns(s *csispec.Snapshot) []string {
	return []string{s.GetSnapshotId(), s.GetSourceVolumeId(), strconv.FormatInt(s.GetSizeBytes(), 10), strconv.FormatBool(s.GetReadyToUse())}
}

func (s *session) snapshotDelete() *cobra.Command {
	return s.verb("delete-snapshot ID...", "Remove snapshots", cobra.MinimumNArgs(1), nil,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, ids []string) error {
			return each(ids, out, func(id string) error {
				_, err := csispec.NewControllerClient(conn).DeleteSnapshot(ctx, &csispec.DeleteSnapshotRequest{SnapshotId: id})
				return err
			})
		})
}

func (s *session) snapshotList() *cobra.Command {
	var (
		entries int32
		source  string
	)
	flags := func(fs *pflag.FlagSet) {
		pageSize(fs, &entries)
		fs.StringVar(&source, "source-volume", "", "only those of this volume")
	}
	return s.verb("list-snapshots", "Snapshots: ID, volume, bytes, whether they are ready", cobra.NoArgs, flags,
		func(ctx context.Context, conn *grpc.ClientConn, out io.Writer, _ []string) error {
			return paged(func(token string) (string, error) {
				r, err := csispec.NewControllerClient(conn).ListSnapshots(ctx, &csispec.ListSnapshotsRequest{MaxEntries: entries, StartingToken: token, SourceVolumeId: source})
				for _, e := range r.GetEntries() {
					line(out, snapshotColumns(e.GetSnapshot())...)
				}
				return r.GetNextToken(), err
			})
		})
}
