package csictl

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// driver answers every call from a table and keeps what was asked.
type driver struct {
	csispec.UnimplementedIdentityServer
	csispec.UnimplementedControllerServer
	csispec.UnimplementedNodeServer
	endpoint string
	answer   proto.Message
	asked    []string
}

func newDriver(t *testing.T) *driver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{endpoint: "tcp://" + l.Addr().String()}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(_ context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		raw, err := protojson.Marshal(req.(proto.Message))
		_, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/csi.v1."), "/")
		d.asked = append(d.asked, method+strings.ReplaceAll(string(raw), " ", ""))
		if d.answer == nil {
			return nil, errors.New("no such volume")
		}
		return d.answer, err
	}))
	csispec.RegisterIdentityServer(server, d)
	csispec.RegisterControllerServer(server, d)
	csispec.RegisterNodeServer(server, d)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return d
}

// run runs the command with the words of a line.
func run(t *testing.T, words string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SetArgs(strings.Fields(words))
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestVerbs(t *testing.T) {
	volume := &csispec.Volume{VolumeId: "v", CapacityBytes: 7, VolumeContext: map[string]string{"b": "2", "a": "1"}}
	file := filepath.Join(t.TempDir(), "context")
	for _, tc := range []struct {
		words, asks, says string
		answer            proto.Message
	}{
		{"identity plugin-info", `GetPluginInfo{}`, "\"d\"  \"1.0\"\n", &csispec.GetPluginInfoResponse{Name: "d", VendorVersion: "1.0"}},
		{"identity probe", `Probe{}`, "true\n", &csispec.ProbeResponse{}},
		{"identity probe", `Probe{}`, "false\n", &csispec.ProbeResponse{Ready: wrapperspb.Bool(false)}},
		{
			"controller new --cap 1,block --req-bytes 5 --params k=w v",
			`CreateVolume{"name":"v","capacityRange":{"requiredBytes":"5"},"volumeCapabilities":[{"block":{},"accessMode":{"mode":"SINGLE_NODE_WRITER"}}],"parameters":{"k":"w"}}`,
			"v\n", &csispec.CreateVolumeResponse{Volume: volume},
		},
		{"controller new -l v", `CreateVolume{"name":"v"}`, "v  7  \"a\"=\"1\"  \"b\"=\"2\"\n", &csispec.CreateVolumeResponse{Volume: volume}},
		{"controller del v", `DeleteVolume{"volumeId":"v"}`, "v\n", &csispec.DeleteVolumeResponse{}},
		{
			"controller validate-volume-capabilities --cap 5,mount,xfs,ro v",
			`ValidateVolumeCapabilities{"volumeId":"v","volumeCapabilities":[{"mount":{"fsType":"xfs","mountFlags":["ro"]},"accessMode":{"mode":"MULTI_NODE_MULTI_WRITER"}}]}`,
			"v  false  no\n", &csispec.ValidateVolumeCapabilitiesResponse{Message: "no"},
		},
		{
			"controller publish --node-id n --read-only --vol-context a=1 v",
			`ControllerPublishVolume{"volumeId":"v","nodeId":"n","readonly":true,"volumeContext":{"a":"1"}}`,
			"v  \"token\"=\"x\"\n", &csispec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"token": "x"}},
		},
		{
			"controller publish --pub-context-file " + file + " v", `ControllerPublishVolume{"volumeId":"v"}`, "v\n",
			&csispec.ControllerPublishVolumeResponse{PublishContext: map[string]string{"token": "x"}},
		},
		{
			"node stage --staging-target-path /s --pub-context-file " + file + " v",
			`NodeStageVolume{"volumeId":"v","publishContext":{"token":"x"},"stagingTargetPath":"/s"}`, "v\n", &csispec.NodeStageVolumeResponse{},
		},
		{"controller unpublish v", `ControllerUnpublishVolume{"volumeId":"v"}`, "v\n", &csispec.ControllerUnpublishVolumeResponse{}},
		{"node publish --target-path /t v", `NodePublishVolume{"volumeId":"v","targetPath":"/t"}`, "v\n", &csispec.NodePublishVolumeResponse{}},
		{"node unpublish --target-path /t v", `NodeUnpublishVolume{"volumeId":"v","targetPath":"/t"}`, "v\n", &csispec.NodeUnpublishVolumeResponse{}},
		{"node get-info", `NodeGetInfo{}`, "n\n", &csispec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 3}},
		{"node get-info -l", `NodeGetInfo{}`, "n  3\n", &csispec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 3}},
		{
			"node expand --volume-path /t --req-bytes 9 v", `NodeExpandVolume{"volumeId":"v","volumePath":"/t","capacityRange":{"requiredBytes":"9"}}`,
			"v  9\n", &csispec.NodeExpandVolumeResponse{CapacityBytes: 9},
		},
		{
			"controller create-snapshot --source-volume v s", `CreateSnapshot{"sourceVolumeId":"v","name":"s"}`, "s-1  v  7  true\n",
			&csispec.CreateSnapshotResponse{Snapshot: &csispec.Snapshot{SnapshotId: "s-1", SourceVolumeId: "v", SizeBytes: 7, ReadyToUse: true}},
		},
	} {
		t.Run(tc.words, func(t *testing.T) {
			d := newDriver(t)
			d.answer = tc.answer
			got, err := run(t, tc.words+" --endpoint "+d.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.asks}, d.asked); diff != "" || got != tc.says {
				t.Errorf("printed %q, want %q\n%s", got, tc.says, diff)
			}
		})
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the file with a secret: %v, %v", fi.Mode(), err)
	}
}

func TestRefusals(t *testing.T) {
	d := newDriver(t)
	for _, tc := range []struct{ words, says string }{
		{"controller del", "requires at least 1 arg"},
		{"controller del v", "no such volume"},
		{"controller new --cap 1 v", "MODE,TYPE"},
		{"controller new --cap 99,block v", "no access mode"},
		{"controller new --cap 1,tape v", "block"},
		{"controller new --cap 1,block,ext4 v", "block"},
		{"node stage --cap 1,block --cap 1,mount v", "one is wanted"},
		{"node stage --pub-context-file /no/such/file v", "read a context"},
		{"controller new --vol-context-file x v w", "one volume"},
		{"identity probe --endpoint http://x", "--endpoint"},
	} {
		words := tc.words
		if !strings.Contains(words, "--endpoint") {
			words += " --endpoint " + d.endpoint
		}
		if out, err := run(t, words); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: printed %q, %v; want an error with %q", tc.words, out, err, tc.says)
		}
	}
}

func TestPages(t *testing.T) {
	tokens := []string{"", "b", "c"}
	err := paged(func(token string) (string, error) {
		if token != tokens[0] {
			t.Fatalf("asked from %q, want %q", token, tokens[0])
		}
		if tokens = tokens[1:]; len(tokens) == 0 {
			return "", nil
		}
		return tokens[0], nil
	})
	if err != nil || len(tokens) != 0 {
		t.Fatalf("left %q, %v", tokens, err)
	}
}
