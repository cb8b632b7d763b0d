// Package blocks is the CSI service SnapshotMetadata over a platform that knows the
// blocks of its snapshots: where one holds data, and where two differ. It holds no
// state: a stream that was cut is asked for again from where it ended.
package blocks

import (
	"context"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// The ranges of one message, if the request does not say how many, and at most: a
// message of gRPC has 4 MiB.
const (
	defaultRanges = 1024
	mostRanges    = 1 << 16
)

// Server is the SnapshotMetadata service.
type Server struct {
	csispec.UnimplementedSnapshotMetadataServer
	snapshots provisioner.Snapshots
	blocks    provisioner.Blocks
}

// New makes the service; without both interfaces every call is refused.
func New(snapshots provisioner.Snapshots, blocks provisioner.Blocks) *Server {
	return &Server{snapshots: snapshots, blocks: blocks}
}

// GetMetadataAllocated tells where a snapshot holds data.
func (s *Server) GetMetadataAllocated(req *csispec.GetMetadataAllocatedRequest, stream csispec.SnapshotMetadata_GetMetadataAllocatedServer) error {
	ctx, id, from := stream.Context(), req.GetSnapshotId(), req.GetStartingOffset()
	err := csiserver.Require("snapshot id", id)
	if err == nil {
		err = s.tell(ctx, question{id, from, req.GetMaxResults()}, func(size int64, list []*csispec.BlockMetadata) error {
			return stream.Send(&csispec.GetMetadataAllocatedResponse{
				BlockMetadataType: csispec.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: size, BlockMetadata: list,
			})
		}, func(found func(provisioner.Range) error) error { return s.blocks.Allocated(ctx, id, from, found) })
	}
	if err != nil {
		return csiserver.ToStatus(fmt.Errorf("tell the data of snapshot %q from byte %d: %w", id, from, err))
	}
	return nil
}

// GetMetadataDelta tells where two snapshots of a volume differ.
func (s *Server) GetMetadataDelta(req *csispec.GetMetadataDeltaRequest, stream csispec.SnapshotMetadata_GetMetadataDeltaServer) error {
	ctx, base, target, from := stream.Context(), req.GetBaseSnapshotId(), req.GetTargetSnapshotId(), req.GetStartingOffset()
	err := csiserver.Require("base snapshot id", base, "target snapshot id", target)
	if err == nil {
		err = s.tell(ctx, question{target, from, req.GetMaxResults()}, func(size int64, list []*csispec.BlockMetadata) error {
			return stream.Send(&csispec.GetMetadataDeltaResponse{
				BlockMetadataType: csispec.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: size, BlockMetadata: list,
			})
		}, func(found func(provisioner.Range) error) error {
			return s.blocks.Changed(ctx, base, target, from, found)
		})
	}
	if err != nil {
		return csiserver.ToStatus(fmt.Errorf("tell what changed from snapshot %q to %q from byte %d: %w", base, target, from, err))
	}
	return nil
}

// question is what is asked about a snapshot: from which byte on, and how many ranges
// a message may have.
type question struct {
	id   string
	from int64
	most int32
}

// tell sends what look finds in the snapshot, in messages of so many ranges. One is
// sent if there is nothing too, since it tells the size.
func (s *Server) tell(ctx context.Context, q question, send func(size int64, list []*csispec.BlockMetadata) error, look func(found func(provisioner.Range) error) error) error {
	if s.snapshots == nil || s.blocks == nil {
		return fmt.Errorf("this platform does not know the blocks of its snapshots: %w", provisioner.ErrUnsupported)
	}
	if q.most < 0 {
		return csiserver.Invalid("max results is %d: a number of ranges is wanted, or 0", q.most)
	}
	have, err := s.snapshots.Get(ctx, q.id)
	if err != nil {
		return err
	}
	if q.from < 0 || q.from > have.SizeBytes {
		return fmt.Errorf("the snapshot has %d bytes: %w", have.SizeBytes, provisioner.ErrOutOfRange)
	}
	limit := min(int(q.most), mostRanges)
	if limit == 0 {
		limit = defaultRanges
	}
	var list []*csispec.BlockMetadata
	sent := false
	flush := func() error {
		sent = true
		err := send(have.SizeBytes, list)
		list = nil
		return err
	}
	if err := look(func(r provisioner.Range) error {
		list = append(list, &csispec.BlockMetadata{ByteOffset: r.Offset, SizeBytes: r.Length})
		if len(list) < limit {
			return nil
		}
		return flush()
	}); err != nil {
		return err
	}
	if len(list) == 0 && sent {
		return nil
	}
	return flush()
}
