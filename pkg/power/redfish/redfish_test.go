package redfish

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/reference/bmc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is one without power cords.
type machine struct {
	mu sync.Mutex
	on bool
}

func (m *machine) IsOn(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on, nil
}

func (m *machine) set(on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = on
	return nil
}

func (m *machine) PowerOff(context.Context) error { return m.set(false) }
func (m *machine) PowerOn(context.Context) error  { return m.set(true) }

const secret = `calvin-"&<s>-secret`

// emulated is a machine that is on, its BMC, and what a client has to know of it.
func emulated(t *testing.T) (*machine, *bmc.Server, *httptest.Server, Config) {
	t.Helper()
	m := &machine{on: true}
	s := bmc.New(bmc.Options{Machine: m, SystemID: "1", SerialNumber: "S1", UUID: "u-1", User: "root", Password: secret, RestorePolicy: "AlwaysOn", Failed: func(err error) { t.Error(err) }})
	web := httptest.NewUnstartedServer(s.Handler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // of certificates that a test refuses
	web.StartTLS()
	t.Cleanup(web.Close)
	return m, s, web, Config{
		Endpoint: web.URL, Want: power.Identity{SerialNumber: "S1", UUID: "u-1"}, Username: "root", Password: secret,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}),
	}
}

func mustNew(t *testing.T, c Config) *BMC {
	t.Helper()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestContract: off, on and reset, each seen by a reading, and done without harm twice.
func TestContract(t *testing.T) {
	m, s, _, c := emulated(t)
	b := mustNew(t, c)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
		want power.State
	}{
		{"nothing", func(context.Context) error { return nil }, power.StateOn},
		{"off", b.PowerOff, power.StateOff},
		{"off again", b.PowerOff, power.StateOff},
		{"on", b.PowerOn, power.StateOn},
		{"on again", b.PowerOn, power.StateOn},
		{"reset", b.Restart, power.StateOn},
	} {
		begun := time.Now()
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		s.Wait()
		r, err := b.Read(t.Context())
		if err != nil || r.System != step.want || r.Chassis != step.want || r.Is != c.Want || r.RestorePolicy != "AlwaysOn" || r.At.Before(begun) || r.LastReset.IsZero() {
			t.Fatalf("after %s it reads %+v, %v, want %s", step.name, r, err, step.want)
		}
		if on, _ := m.IsOn(t.Context()); on != (r.System == power.StateOn) {
			t.Errorf("after %s the machine is on: %v", step.name, on)
		}
	}
}

// TestLies: what is told of each way in which a BMC does not do, or say, what is so.
func TestLies(t *testing.T) {
	for lie, want := range map[bmc.Lie]struct {
		off, read error
		system    power.State
		chassis   power.State
		words     string
	}{
		bmc.None:         {nil, nil, power.StateOff, power.StateOff, ""},
		bmc.Accepts:      {nil, nil, power.StateOn, power.StateOn, ""},
		bmc.SaysOff:      {nil, nil, power.StateOff, power.StateOff, ""},
		bmc.ChassisOn:    {nil, nil, power.StateOff, power.StateOn, ""},
		bmc.NoState:      {nil, nil, power.StateUnknown, "", ""},
		bmc.Returns:      {nil, nil, power.StateOn, power.StateOn, ""},
		bmc.OtherMachine: {power.ErrOtherMachine, nil, power.StateOn, power.StateOn, `switch off the machine with serial number S1 through https://`},
		bmc.Unauthorized: {power.ErrCredentials, power.ErrCredentials, "", "", "the BMC refuses the credentials"},
		bmc.Hangs:        {power.ErrUnreachable, power.ErrUnreachable, "", "", "the BMC does not answer"},
		bmc.Refuses:      {power.ErrRefused, nil, power.StateOn, power.StateOn, "the BMC refuses the request: 409"},
	} {
		t.Run("lie "+string(lie), func(t *testing.T) {
			m, s, _, c := emulated(t)
			if lie == bmc.Hangs {
				c.Timeout = 300 * time.Millisecond
			}
			b := mustNew(t, c)
			if err := s.SetLie(lie); err != nil {
				t.Fatal(err)
			}
			off := b.PowerOff(t.Context())
			s.Wait()
			r, read := b.Read(t.Context())
			if !errors.Is(off, want.off) || !errors.Is(read, want.read) || r.System != want.system || r.Chassis != want.chassis {
				t.Errorf("off %v, read %+v, %v, want %+v", off, r, read, want)
			}
			for _, err := range []error{off, read} {
				if err != nil && (strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), want.words)) {
					t.Errorf("told %q, want %q and no password", err, want.words)
				}
			}
			if on, _ := m.IsOn(t.Context()); lie == bmc.OtherMachine && (!on || len(s.Resets()) > 0) {
				t.Errorf("another machine was switched off: %v", s.Resets())
			}
			if lie == bmc.OtherMachine && c.Want.Refuse(r.Is) == "" {
				t.Errorf("reads %+v as the machine on record", r)
			}
		})
	}
}

// TestRefusesWhatIsSo: a BMC that will not switch off what is off has nothing to do.
func TestRefusesWhatIsSo(t *testing.T) {
	m, s, _, c := emulated(t)
	b := mustNew(t, c)
	if err := errors.Join(m.PowerOff(t.Context()), s.SetLie(bmc.Refuses)); err != nil {
		t.Fatal(err)
	}
	if err := b.PowerOff(t.Context()); err != nil {
		t.Errorf("a machine that is off is not switched off: %v", err)
	}
	if err := b.Restart(t.Context()); !errors.Is(err, power.ErrRefused) {
		t.Errorf("a machine that is off is reset: %v", err)
	}
	if err := b.PowerOn(t.Context()); !errors.Is(err, power.ErrRefused) {
		t.Errorf("a machine that is off is switched on against its BMC's word: %v", err)
	}
}

// TestWrongCredentialsAndCertificates: neither is passed over, nor told.
func TestWrongCredentialsAndCertificates(t *testing.T) {
	_, _, web, c := emulated(t)
	wrong, unknown, trusting := c, c, c
	wrong.Password = "another-secret"
	unknown.CA = nil
	trusting.CA, trusting.Insecure = nil, true
	if _, err := mustNew(t, wrong).Read(t.Context()); !errors.Is(err, power.ErrCredentials) || strings.Contains(err.Error(), "another-secret") {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := mustNew(t, unknown).Read(t.Context()); !errors.Is(err, power.ErrUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that is not known: %v", err)
	}
	if _, err := mustNew(t, trusting).Read(t.Context()); err != nil {
		t.Errorf("any certificate is to be taken: %v", err)
	}
	web.Close()
	if _, err := mustNew(t, c).Read(t.Context()); !errors.Is(err, power.ErrUnreachable) {
		t.Errorf("a BMC that is away: %v", err)
	}
}

// TestLeadsElsewhere: the password goes to no other machine, and what a BMC echoes of it is
// not told.
func TestLeadsElsewhere(t *testing.T) {
	asked := false
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	_, _, _, c := emulated(t)
	for name, systems := range map[string]string{
		"by the address of a resource": `{"Members@odata.count":1,"Members":[{"@odata.id":"@` + strings.TrimPrefix(other.URL, "https://") + `/redfish/v1/Systems/1"}]}`,
		"by a redirect":                "",
		"by an echo":                   "echo",
	} {
		evil := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/redfish/v1/" || r.URL.Path == "/redfish/v1":
				_, _ = w.Write([]byte(`{"Systems":{"@odata.id":"/redfish/v1/Systems"}}`))
			case systems == "":
				http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			case systems == "echo":
				http.Error(w, secret+r.Header.Get("Authorization"), http.StatusInternalServerError)
			default:
				_, _ = w.Write([]byte(systems))
			}
		}))
		c.Endpoint, c.CA = evil.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: evil.Certificate().Raw})
		b := mustNew(t, c)
		_, err := b.Read(t.Context())
		if err == nil || asked || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), b.basic()) {
			t.Errorf("%s: asked elsewhere: %v, %v", name, asked, err)
		}
		evil.Close()
	}
}

// TestNew: what cannot work is refused before anything is asked.
func TestNew(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		words  string
	}{
		"no address":        {Config{}, "https://host or https://host:port is possible"},
		"no TLS":            {Config{Endpoint: "http://bmc"}, "https://host or"},
		"with a password":   {Config{Endpoint: "https://root:plain@bmc", Password: "plain"}, "https://host or"},
		"with a path":       {Config{Endpoint: "https://bmc/redfish"}, "https://host or"},
		"no serial number":  {Config{Endpoint: "https://bmc"}, "no serial number is on record"},
		"no certificate":    {Config{Endpoint: "https://bmc/", Want: power.Identity{SerialNumber: "S1"}, CA: []byte("-")}, "holds no certificate in PEM"},
		"nothing is amiss ": {Config{Endpoint: "https://bmc:8443/", Want: power.Identity{SerialNumber: "S1"}}, ""},
	} {
		_, err := New(c.config)
		if (err == nil) != (c.words == "") || err != nil && (!strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "plain")) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
	}
}
