package snaprpc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAttachControllerAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, result string
		want         []string
		refused      bool
	}{
		{name: "SPDK's list", result: `["nvme_vn1","nvme_vn2"]`, want: []string{"nvme_vn1", "nvme_vn2"}},
		{name: "one name", result: `"nvme_vn1"`, want: []string{"nvme_vn1"}},
		{name: "no namespace", result: `[]`, want: []string{}},
		{name: "another shape", result: `{"name":"nvme_vn1"}`, refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(serve(t, reply(`{"jsonrpc":"2.0","id":ID,"result":`+tc.result+`}`)), time.Minute)
			got, err := c.BdevNvmeAttachController(t.Context(), "nvme_v", TransportID{})
			if (err != nil) != tc.refused || !cmp.Equal(got, tc.want) {
				t.Fatalf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestSameTransportID(t *testing.T) {
	asked := TransportID{TrType: "NVDA_TCP", AdrFam: "ipv4", TrAddr: "192.0.2.1", TrSvcID: "4420", SubNQN: "nqn.a"}
	for _, tc := range []struct {
		name string
		told func(*TransportID)
		want bool
	}{
		{"in SPDK's words", func(t *TransportID) { t.AdrFam = "IPv4" }, true},
		{"another transport", func(t *TransportID) { t.TrType = "TCP" }, false},
		{"another address", func(t *TransportID) { t.TrAddr = "192.0.2.2" }, false},
		{"another port", func(t *TransportID) { t.TrSvcID = "4421" }, false},
		{"another subsystem, by case alone", func(t *TransportID) { t.SubNQN = "nqn.A" }, false},
	} {
		told := asked
		tc.told(&told)
		if got := asked.Same(told); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestGetControllersAnswer is an answer of SPDK with two paths, of which one is gone.
func TestGetControllersAnswer(t *testing.T) {
	text := `[{"name":"c","ctrlrs":[
		{"state":"failed","trid":{"trtype":"TCP","adrfam":"IPv4","traddr":"192.0.2.1","trsvcid":"4420","subnqn":"nqn.a"},"cntlid":1,"host":{"nqn":"nqn.h","addr":"","svcid":""}},
		{"state":"enabled","trid":{"trtype":"TCP","adrfam":"IPv4","traddr":"192.0.2.2","trsvcid":"4420","subnqn":"nqn.a"},"cntlid":2}]},
		{"name":"old","trid":{"trtype":"PCIe","traddr":"0000:00:04.0"}}]`
	got, err := New(serve(t, reply(`{"jsonrpc":"2.0","id":ID,"result":`+text+`}`)), time.Minute).BdevNvmeGetControllers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := func(state, address string, number uint16) NVMePath {
		return NVMePath{State: state, Controller: &number, TrID: TransportID{TrType: "TCP", AdrFam: "IPv4", TrAddr: address, TrSvcID: "4420", SubNQN: "nqn.a"}}
	}
	want := []NVMeController{{Name: "c", Paths: []NVMePath{path(PathFailed, "192.0.2.1", 1), path(PathEnabled, "192.0.2.2", 2)}}, {Name: "old"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestIostatAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, bdev       string
		completed, depth int64
		sampled          bool
	}{
		{name: "nothing but a name", bdev: `{"name":"b"}`},
		{name: "not sampled", bdev: `{"name":"b","num_read_ops":1,"num_write_ops":2,"num_unmap_ops":4,"num_copy_ops":8,"io_error":{}}`, completed: 15},
		{name: "errors", bdev: `{"name":"b","num_read_ops":1,"io_error":{"nvme_error":2,"aborted":4}}`, completed: 7},
		{name: "sampled", bdev: `{"name":"b","queue_depth_polling_period":100000,"queue_depth":3,"io_time":7}`, depth: 3, sampled: true},
		{name: "idle", bdev: `{"name":"b","queue_depth_polling_period":100000,"queue_depth":0}`, sampled: true},
		{name: "before the first sample", bdev: `{"name":"b","queue_depth_polling_period":100000,"queue_depth":18446744073709551615}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(serve(t, reply(`{"jsonrpc":"2.0","id":ID,"result":{"tick_rate":1,"ticks":2,"bdevs":[`+tc.bdev+`]}}`)), time.Minute)
			got, err := c.BdevGetIostat(t.Context(), "")
			if err != nil || len(got) != 1 || got[0].Name != "b" {
				t.Fatalf("got %+v, %v", got, err)
			}
			depth, sampled := got[0].QueueDepth()
			if n := got[0].Completed(); n != uint64(tc.completed) || depth != tc.depth || sampled != tc.sampled {
				t.Errorf("%d ended, %d in flight, sampled is %v", n, depth, sampled)
			}
		})
	}
}
