package snaprpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs handle once for each connection to a new socket and returns the
// socket's path.
func serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

// reply reads a request and answers with the text, in which ID stands for the
// request's id.
func reply(text string) func(net.Conn) {
	return func(c net.Conn) {
		var req struct{ ID int64 }
		if json.NewDecoder(c).Decode(&req) != nil {
			return
		}
		_, _ = io.WriteString(c, strings.ReplaceAll(text, "ID", fmt.Sprint(req.ID)))
	}
}

func TestCallAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, text  string
		unavailable bool
		code        int
		says        string
	}{
		{name: "result", text: `{"jsonrpc":"2.0","id":ID,"result":["a"]}` + "\n"},
		{name: "no newline", text: `{"jsonrpc":"2.0","id":ID,"result":["a"]}`},
		{name: "null error beside a result", text: `{"jsonrpc":"2.0","id":ID,"error":null,"result":["a"]}`},
		{name: "refusal", text: `{"jsonrpc":"2.0","id":ID,"error":{"code":-17,"message":"File exists"}}`, code: -17, says: "File exists"},
		{name: "refusal of a request that was not read", text: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`, code: -32700},
		{name: "garbage", text: "HTTP/1.1 400 Bad Request\r\n", unavailable: true, says: "invalid character"},
		{name: "half", text: `{"jsonrpc":"2.0","id":ID,"res`, unavailable: true, says: "unexpected EOF"},
		{name: "closed", text: "", unavailable: true, says: "EOF"},
		{name: "late answer to another request", text: `{"jsonrpc":"2.0","id":4711,"result":["a"]}`, unavailable: true, says: "4711"},
		{name: "id as a string", text: `{"jsonrpc":"2.0","id":"ID","result":["a"]}`, unavailable: true},
		{name: "no id", text: `{"jsonrpc":"2.0","result":["a"]}`, unavailable: true},
		{name: "wrong version", text: `{"jsonrpc":"1.0","id":ID,"result":["a"]}`, unavailable: true},
		{name: "null result", text: `{"jsonrpc":"2.0","id":ID,"result":null}`, unavailable: true, says: "no result"},
		{name: "other shape", text: `{"jsonrpc":"2.0","id":ID,"result":{"a":1}}`, unavailable: true, says: "shape"},
		{name: "array", text: `[1,2]`, unavailable: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := New(serve(t, reply(tc.text)), time.Minute)
			var got []string
			err := c.Call(t.Context(), "m", nil, &got)
			if errors.Is(err, ErrUnavailable) != tc.unavailable {
				t.Errorf("unavailable = %v, want %v: %v", !tc.unavailable, tc.unavailable, err)
			}
			if code, _ := Code(err); code != tc.code {
				t.Errorf("code = %d, want %d: %v", code, tc.code, err)
			}
			if tc.says != "" && !strings.Contains(fmt.Sprint(err), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
			if !tc.unavailable && tc.code == 0 && (err != nil || !cmp.Equal(got, []string{"a"})) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestCallThatNeverAnswers(t *testing.T) {
	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	t.Run("timeout", func(t *testing.T) {
		err := New(serve(t, hang), 20*time.Millisecond).Call(t.Context(), "m", nil, nil)
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		got := make(chan struct{}, 1)
		socket := serve(t, func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString('\n'); got <- struct{}{}; hang(c) })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-got; cancel() }()
		err := New(socket, time.Minute).Call(ctx, "m", nil, nil)
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestCallWithoutService(t *testing.T) {
	err := New(filepath.Join(t.TempDir(), "none"), time.Second).Call(t.Context(), "m", nil, nil)
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("no socket: %v", err)
	}
	err = New("/"+strings.Repeat("x", 120), time.Second).Call(t.Context(), "m", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("long path: %v", err)
	}
}

func TestClassification(t *testing.T) {
	wrap := func(code int, msg string) error {
		return fmt.Errorf("outer: %w", &Error{Code: code, Message: msg})
	}
	for _, tc := range []struct {
		err                       error
		notFound, exists, unknown bool
	}{
		{err: wrap(-2, "x"), notFound: true},
		{err: wrap(-19, "x"), notFound: true},
		{err: wrap(-32602, "No such device"), notFound: true},
		{err: wrap(-17, "x"), exists: true},
		{err: wrap(-32601, "x"), unknown: true},
		{err: wrap(-22, "x")},
		{err: errors.New("no such device")},
		{err: nil},
	} {
		if got := []bool{IsNotFound(tc.err), IsExists(tc.err), IsMethodNotFound(tc.err)}; !cmp.Equal(got, []bool{tc.notFound, tc.exists, tc.unknown}) {
			t.Errorf("%v: got %v", tc.err, got)
		}
	}
}

func TestRequestShapes(t *testing.T) {
	ctx, zero := t.Context(), 0
	for _, tc := range []struct {
		name, result, want string
		call               func(*Client) error
	}{
		{"subsystems", `[]`, `{"method":"nvme_subsystem_list"}`, func(c *Client) error { _, err := c.NvmeSubsystemList(ctx); return err }},
		{"subsystem create", `{}`, `{"method":"nvme_subsystem_create","params":{"nqn":"n"}}`, func(c *Client) error { return c.NvmeSubsystemCreate(ctx, "n") }},
		{"subsystem destroy", `true`, `{"method":"nvme_subsystem_destroy","params":{"nqn":"n"}}`, func(c *Client) error { return c.NvmeSubsystemDestroy(ctx, "n", false) }},
		{
			"namespace create", `{}`, `{"method":"nvme_namespace_create","params":{"bdev_type":"spdk","nqn":"n","nsid":1,"uuid":"u","bdev_name":"b"}}`,
			func(c *Client) error {
				return c.NvmeNamespaceCreate(ctx, NamespaceSpec{NQN: "n", NSID: 1, UUID: "u", BdevName: "b"})
			},
		},
		{"functions", `[]`, `{"method":"emulation_function_list","params":{"all":true}}`, func(c *Client) error { _, err := c.EmulationFunctionList(ctx); return err }},
		{
			"controller by bdf", `{"ctrl_id":"c"}`, `{"method":"nvme_controller_create","params":{"nqn":"n","pci_bdf":"26:00.2","suspended":true,"num_queues":4}}`,
			func(c *Client) error {
				_, err := c.NvmeControllerCreate(ctx, ControllerSpec{NQN: "n", PCIBDF: "26:00.2", Suspended: true, Parameters: map[string]any{"num_queues": 4}})
				return err
			},
		},
		{
			"admin controller", `{"ctrl_id":"c"}`, `{"method":"nvme_controller_create","params":{"nqn":"n","pf_id":0,"ctrl_id":"NVMeCtrl1","admin_only":true}}`,
			func(c *Client) error {
				_, err := c.NvmeControllerCreate(ctx, ControllerSpec{NQN: "n", PFID: &zero, CtrlID: "NVMeCtrl1", AdminOnly: true})
				return err
			},
		},
		{"controller destroy", `true`, `{"method":"nvme_controller_destroy","params":{"ctrl_id":"c","force":true}}`, func(c *Client) error { return c.NvmeControllerDestroy(ctx, "c", true) }},
		{"attach", `true`, `{"method":"nvme_controller_attach_ns","params":{"ctrl_id":"c","nsid":1}}`, func(c *Client) error { return c.NvmeControllerAttachNS(ctx, "c", 1) }},
		{
			"aio", `"b"`, `{"method":"bdev_aio_create","params":{"name":"b","filename":"/f","block_size":512}}`,
			func(c *Client) error {
				_, err := c.BdevAioCreate(ctx, AIOSpec{Name: "b", Filename: "/f", BlockSize: 512})
				return err
			},
		},
		{
			"connect", `["cn1"]`, `{"method":"bdev_nvme_attach_controller","params":{"name":"c","trtype":"NVDA_TCP","adrfam":"ipv4","traddr":"192.0.2.1","trsvcid":"4420","subnqn":"nqn.a"}}`,
			func(c *Client) error {
				_, err := c.BdevNvmeAttachController(ctx, "c", TransportID{TrType: TransportNVDATCP, AdrFam: "ipv4", TrAddr: "192.0.2.1", TrSvcID: "4420", SubNQN: "nqn.a"})
				return err
			},
		},
		{"iostat", `{"bdevs":[]}`, `{"method":"bdev_get_iostat"}`, func(c *Client) error { _, err := c.BdevGetIostat(ctx, ""); return err }},
		{"iostat of one", `{"bdevs":[]}`, `{"method":"bdev_get_iostat","params":{"name":"b"}}`, func(c *Client) error { _, err := c.BdevGetIostat(ctx, "b"); return err }},
		{
			"sampling", `true`, `{"method":"bdev_set_qd_sampling_period","params":{"name":"b","period":100000}}`,
			func(c *Client) error { return c.BdevSetQDSamplingPeriod(ctx, "b", 100*time.Millisecond) },
		},
		{"no sampling", `true`, `{"method":"bdev_set_qd_sampling_period","params":{"name":"b","period":0}}`, func(c *Client) error { return c.BdevSetQDSamplingPeriod(ctx, "b", 0) }},
		{"controllers", `[]`, `{"method":"bdev_nvme_get_controllers"}`, func(c *Client) error { _, err := c.BdevNvmeGetControllers(ctx); return err }},
		{
			"health", `{"traddr":"192.0.2.1"}`, `{"method":"bdev_nvme_get_controller_health_info","params":{"name":"c"}}`,
			func(c *Client) error { _, err := c.BdevNvmeGetControllerHealthInfo(ctx, "c"); return err },
		},
		{"disconnect", `true`, `{"method":"bdev_nvme_detach_controller","params":{"name":"c"}}`, func(c *Client) error { return c.BdevNvmeDetachController(ctx, "c") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := make(chan map[string]any, 1)
			c := New(serve(t, func(conn net.Conn) {
				var m map[string]any
				if err := json.NewDecoder(conn).Decode(&m); err != nil {
					t.Error(err)
				}
				fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%v,"result":%s}`, m["id"], tc.result)
				seen <- m
			}), time.Minute)
			if err := tc.call(c); err != nil {
				t.Fatal(err)
			}
			got, want := <-seen, map[string]any{}
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			want["jsonrpc"], want["id"] = "2.0", 1.0
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestControllerWithoutIDIsAnError(t *testing.T) {
	c := New(serve(t, reply(`{"jsonrpc":"2.0","id":ID,"result":{}}`)), time.Minute)
	if _, err := c.NvmeControllerCreate(t.Context(), ControllerSpec{NQN: "n"}); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestWeirdKeys(t *testing.T) {
	text := `{"jsonrpc":"2.0","id":ID,"result":[{"nqn":"n","mn":"m","namespaces":[{"nsid":1,"bdev":"b","ready":"Yes","max inflights per weight":7,"controllers":[{"ctrl_id":"c"}]}]}]}`
	got, err := New(serve(t, reply(text)), time.Minute).NvmeSubsystemList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Subsystem{{NQN: "n", ModelNumber: "m", Namespaces: []Namespace{{NSID: 1, Bdev: "b", Ready: "Yes", MaxInflights: 7, Controllers: []CtrlRef{{CtrlID: "c"}}}}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzDecodeAnswer(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":[]}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-2,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":null}`, `{`, `null`, `[[[[`, `{"id":1e400}`, "\x00\xff", `{"jsonrpc":"2.0","id":1,"result":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out []Subsystem
		err := decodeAnswer(strings.NewReader(string(in)), 1, &out)
		if err == nil && out == nil {
			t.Fatalf("%q: neither an error nor a result", in)
		}
		if _, refused := Code(err); err != nil && !refused && !errors.Is(err, ErrUnavailable) {
			t.Fatalf("%q: unclassified error %v", in, err)
		}
	})
}
