//go:build sanity

package sanity

import (
	"context"
	"fmt"
	"slices"
	"sync"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// driver is the driver as one spec uses it. What the spec makes is gone after it.
type driver struct {
	csispec.ControllerClient
	groups csispec.GroupControllerClient
	node   string
}

func newDriver(ctx context.Context) *driver {
	GinkgoHelper()
	dial := func(endpoint string) *grpc.ClientConn {
		conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(conn.Close)
		return conn
	}
	conn := dial(*controller)
	info, err := csispec.NewNodeClient(dial(*node)).NodeGetInfo(ctx, &csispec.NodeGetInfoRequest{})
	Expect(err).NotTo(HaveOccurred())
	return &driver{ControllerClient: csispec.NewControllerClient(conn), groups: csispec.NewGroupControllerClient(conn), node: info.GetNodeId()}
}

// capability is that of the access type under test, for one node.
func capability() *csispec.VolumeCapability {
	out := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if *access == "block" {
		out.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
	} else {
		out.AccessType = &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{}}
	}
	return out
}

func named(name string) *csispec.CreateVolumeRequest {
	return &csispec.CreateVolumeRequest{
		Name: name, CapacityRange: &csispec.CapacityRange{RequiredBytes: size}, Parameters: parameters(),
		VolumeCapabilities: []*csispec.VolumeCapability{capability()},
	}
}

// volume makes a volume.
func (d *driver) volume(ctx context.Context) string {
	GinkgoHelper()
	resp, err := d.CreateVolume(ctx, named("own-"+uuid.NewString()))
	Expect(err).NotTo(HaveOccurred())
	id := resp.GetVolume().GetVolumeId()
	DeferCleanup(d.drop, id)
	return id
}

// drop deletes a volume, as the caller's own function at the end of a spec too.
func (d *driver) drop(ctx context.Context, id string) {
	GinkgoHelper()
	_, err := d.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: id})
	Expect(err).NotTo(HaveOccurred())
	_, err = d.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: id})
	Expect(err).NotTo(HaveOccurred())
}

func (d *driver) publish(ctx context.Context, id string) (map[string]string, error) {
	resp, err := d.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{VolumeId: id, NodeId: d.node, VolumeCapability: capability()})
	return resp.GetPublishContext(), err
}

// page lists from a token on, at most most volumes (0: all).
func (d *driver) page(ctx context.Context, token string, most int32) (map[string][]string, string) {
	GinkgoHelper()
	resp, err := d.ListVolumes(ctx, &csispec.ListVolumesRequest{StartingToken: token, MaxEntries: most})
	Expect(err).NotTo(HaveOccurred())
	out := map[string][]string{}
	for _, e := range resp.GetEntries() {
		out[e.GetVolume().GetVolumeId()] = e.GetStatus().GetPublishedNodeIds()
	}
	Expect(out).To(HaveLen(len(resp.GetEntries())), "no volume twice")
	return out, resp.GetNextToken()
}

// atOnce runs do that often at the same time and returns what came of each.
// Aborted is an answer, which says to ask again; then it is asked once more.
func atOnce[T any](n int, do func(i int) (T, error)) []T {
	GinkgoHelper()
	out, failed := make([]T, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { out[i], failed[i] = do(i) })
	}
	all.Wait()
	for i, err := range failed {
		if status.Code(err) == codes.Aborted {
			out[i], err = do(i)
		}
		Expect(err).NotTo(HaveOccurred())
	}
	return out
}

var _ = Describe("what csi-sanity does not try", func() {
	It("lists each volume that stays exactly once, while others come and go between the pages", func(ctx context.Context) {
		d := newDriver(ctx)
		stay := map[string]bool{}
		for range 6 {
			stay[d.volume(ctx)] = true
		}
		seen, token := map[string]int{}, ""
		for churn := 0; ; {
			listed, next := d.page(ctx, token, 2)
			Expect(len(listed)).To(BeNumerically("<=", 2))
			for id := range listed {
				seen[id]++
				if churn < 2 && stay[id] { // the one that the token stands on, too
					churn++
					delete(stay, id)
					d.drop(ctx, id)
					d.volume(ctx)
				}
			}
			if token = next; token == "" {
				break
			}
		}
		Expect(stay).To(HaveLen(4))
		for id := range stay {
			Expect(seen).To(HaveKeyWithValue(id, 1))
		}
		for id, times := range seen {
			Expect(times).To(Equal(1), id)
		}
	})

	It("tells on which nodes a volume is", func(ctx context.Context) {
		d := newDriver(ctx)
		id, other := d.volume(ctx), d.volume(ctx)
		nodes := func(id string) []string {
			GinkgoHelper()
			listed, _ := d.page(ctx, "", 0)
			Expect(listed).To(HaveKey(id))
			one, err := d.ControllerGetVolume(ctx, &csispec.ControllerGetVolumeRequest{VolumeId: id})
			Expect(err).NotTo(HaveOccurred())
			Expect(one.GetStatus().GetPublishedNodeIds()).To(ConsistOf(listed[id]), "both calls say the same")
			return listed[id]
		}
		Expect(nodes(id)).To(BeEmpty())
		_, err := d.publish(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes(id)).To(ConsistOf(d.node))
		Expect(nodes(other)).To(BeEmpty())
		_, err = d.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: d.node})
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes(id)).To(BeEmpty())
	})

	It("makes one volume for many calls at once, and many for as many", func(ctx context.Context) {
		d := newDriver(ctx)
		name := "own-" + uuid.NewString()
		same := atOnce(8, func(int) (string, error) {
			resp, err := d.CreateVolume(ctx, named(name))
			return resp.GetVolume().GetVolumeId(), err
		})
		DeferCleanup(d.drop, same[0])
		Expect(slices.Compact(same)).To(HaveLen(1))
		contexts := atOnce(4, func(int) (map[string]string, error) { return d.publish(ctx, same[0]) })
		for _, c := range contexts {
			Expect(c).To(Equal(contexts[0]))
		}

		ids := atOnce(6, func(i int) (string, error) {
			resp, err := d.CreateVolume(ctx, named(fmt.Sprintf("%s-%d", name, i)))
			return resp.GetVolume().GetVolumeId(), err
		})
		for _, id := range ids {
			DeferCleanup(d.drop, id)
		}
		functions := atOnce(len(ids), func(i int) (string, error) {
			c, err := d.publish(ctx, ids[i])
			return fmt.Sprint(c["nv-pciDeviceAddress"], " ", c["nv-nvmeNsID"]), err
		})
		slices.Sort(functions)
		Expect(slices.Compact(functions)).To(HaveLen(len(ids)), "each has a function of its own")
	})

	It("keeps several volumes at one instant, as one group", func(ctx context.Context) {
		d := newDriver(ctx)
		volumes := []string{d.volume(ctx), d.volume(ctx)}
		request := &csispec.CreateVolumeGroupSnapshotRequest{Name: "own-" + uuid.NewString(), SourceVolumeIds: volumes}
		made, err := d.groups.CreateVolumeGroupSnapshot(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		group := made.GetGroupSnapshot()
		var snapshots, sources []string
		for _, s := range group.GetSnapshots() {
			Expect(s.GetGroupSnapshotId()).To(Equal(group.GetGroupSnapshotId()))
			snapshots, sources = append(snapshots, s.GetSnapshotId()), append(sources, s.GetSourceVolumeId())
		}
		remove := func(ctx context.Context) {
			GinkgoHelper()
			_, err := d.groups.DeleteVolumeGroupSnapshot(ctx, &csispec.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: snapshots})
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(remove)
		Expect(group.GetReadyToUse()).To(BeTrue())
		Expect(sources).To(ConsistOf(volumes))
		again, err := d.groups.CreateVolumeGroupSnapshot(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.GetGroupSnapshot().GetCreationTime().AsTime()).To(Equal(group.GetCreationTime().AsTime()), "asked again it is the same one")
		get := &csispec.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: snapshots}
		got, err := d.groups.GetVolumeGroupSnapshot(ctx, get)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.GetGroupSnapshot().GetSnapshots()).To(HaveLen(2))
		_, err = d.DeleteSnapshot(ctx, &csispec.DeleteSnapshotRequest{SnapshotId: snapshots[0]})
		Expect(status.Code(err)).To(Equal(codes.InvalidArgument), "the snapshots of a group go together")

		from := named("own-" + uuid.NewString())
		from.VolumeContentSource = &csispec.VolumeContentSource{Type: &csispec.VolumeContentSource_Snapshot{Snapshot: &csispec.VolumeContentSource_SnapshotSource{SnapshotId: snapshots[0]}}}
		restored, err := d.CreateVolume(ctx, from)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(d.drop, restored.GetVolume().GetVolumeId())

		remove(ctx)
		_, err = d.groups.GetVolumeGroupSnapshot(ctx, get)
		Expect(status.Code(err)).To(Equal(codes.NotFound))
		left, err := d.ListSnapshots(ctx, &csispec.ListSnapshotsRequest{SnapshotId: snapshots[0]})
		Expect(err).NotTo(HaveOccurred())
		Expect(left.GetEntries()).To(BeEmpty())
	})
})
