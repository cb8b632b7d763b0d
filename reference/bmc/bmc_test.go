package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

type machine struct {
	mu    sync.Mutex
	on    bool
	fails error
}

func (m *machine) IsOn(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on, m.fails
}

func (m *machine) set(on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = on
	return m.fails
}

func (m *machine) PowerOff(context.Context) error { return m.set(false) }
func (m *machine) PowerOn(context.Context) error  { return m.set(true) }

// call is a request with the token of a session, or with basic authentication if it is "".
func call(t *testing.T, h http.Handler, token, method, path, body string) (int, object, http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if token == "" {
		r.SetBasicAuth("root", "secret")
	} else {
		r.Header.Set("X-Auth-Token", token)
	}
	w, out := httptest.NewRecorder(), object{}
	h.ServeHTTP(w, r)
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return w.Code, out, w.Header()
}

const resetPath = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"

// TestReset: what it says after each reset is what became of the machine.
func TestReset(t *testing.T) {
	m, clock := &machine{on: true}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	s := New(Options{Machine: m, SystemID: "1", SerialNumber: "S1", User: "root", Password: "secret", BootTime: 10 * time.Second, Clock: clock})
	h := s.Handler()
	for _, step := range []struct {
		reset, power, stage string
		code                int
		later               time.Duration
		resetAt             int64
	}{
		{"", "On", "OSBootStarted", 0, 0, 1000},
		{"", "On", "OSRunning", 0, 10 * time.Second, 1000},
		{"ForceOff", "Off", "None", http.StatusNoContent, 0, 1000},
		{"ForceOff", "Off", "None", http.StatusNoContent, time.Second, 1000},
		{"On", "On", "OSBootStarted", http.StatusNoContent, time.Second, 1011},
		{"On", "On", "OSRunning", http.StatusNoContent, 10 * time.Second, 1011},
		{"ForceRestart", "On", "OSBootStarted", http.StatusNoContent, 0, 1022},
		{"Nmi", "On", "OSBootStarted", http.StatusBadRequest, 0, 1022},
	} {
		if step.reset != "" {
			if code, _, _ := call(t, h, "", "POST", resetPath, `{"ResetType":"`+step.reset+`"}`); code != step.code {
				t.Errorf("%s: %d, want %d", step.reset, code, step.code)
			}
		}
		s.Wait()
		clock.Step(step.later)
		_, is, _ := call(t, h, "", "GET", "/redfish/v1/Systems/1", "")
		progress, _ := is["BootProgress"].(map[string]any)
		if is["PowerState"] != step.power || progress["LastState"] != step.stage || is["SerialNumber"] != "S1" {
			t.Errorf("after %s: %v, want %+v", step.reset, is, step)
		}
		if _, chassis, _ := call(t, h, "", "GET", "/redfish/v1/Chassis/Chassis", ""); chassis["PowerState"] != step.power {
			t.Errorf("after %s: chassis %v", step.reset, chassis)
		}
	}
	if want := []string{"ForceOff", "ForceOff", "On", "On", "ForceRestart"}; !slices.Equal(s.Resets(), want) {
		t.Errorf("asked for %q, want %q", s.Resets(), want)
	}
}

// TestSessions: a session is good until it is closed, and nothing is told without one.
func TestSessions(t *testing.T) {
	s := New(Options{Machine: &machine{on: true}, SystemID: "1", User: "root", Password: "secret"})
	h := s.Handler()
	for _, path := range []string{"/redfish/v1/Systems", "/redfish/v1/Systems/1", "/redfish/v1/Chassis", "/redfish/v1/Managers/BMC"} {
		if code, _, _ := call(t, h, "none", "GET", path, ""); code != http.StatusUnauthorized {
			t.Errorf("%s without a session: %d", path, code)
		}
	}
	if code, _, _ := call(t, h, "none", "POST", "/redfish/v1/SessionService/Sessions", `{"UserName":"root","Password":"wrong"}`); code != http.StatusUnauthorized {
		t.Errorf("a wrong password: %d", code)
	}
	code, _, header := call(t, h, "none", "POST", "/redfish/v1/SessionService/Sessions", `{"UserName":"root","Password":"secret"}`)
	token := header.Get("X-Auth-Token")
	if code != http.StatusCreated || token == "" {
		t.Fatalf("a session: %d %v", code, header)
	}
	if code, _, _ := call(t, h, token, "GET", "/redfish/v1/Systems/1", ""); code != http.StatusOK {
		t.Errorf("with a session: %d", code)
	}
	if code, _, _ := call(t, h, token, "DELETE", header.Get("Location"), ""); code != http.StatusNoContent {
		t.Errorf("close the session: %d", code)
	}
	if code, _, _ := call(t, h, token, "GET", "/redfish/v1/Systems/1", ""); code != http.StatusUnauthorized {
		t.Errorf("with a session that is closed: %d", code)
	}
}

// TestHookFails: a machine of which nothing is known is not told of, and a reset that fails
// after it was accepted is told to who runs the BMC.
func TestHookFails(t *testing.T) {
	m, told := &machine{on: true, fails: errors.New("no hands")}, make(chan error, 1)
	s := New(Options{Machine: m, SystemID: "1", User: "root", Password: "secret", Failed: func(err error) { told <- err }})
	if code, _, _ := call(t, s.Handler(), "", "GET", "/redfish/v1/Systems/1", ""); code != http.StatusInternalServerError {
		t.Errorf("a machine of which nothing is known: %d", code)
	}
	if code, _, _ := call(t, s.Handler(), "", "POST", resetPath, `{"ResetType":"ForceOff"}`); code != http.StatusNoContent {
		t.Errorf("accept: %d", code)
	}
	s.Wait()
	if err := <-told; !errors.Is(err, m.fails) {
		t.Errorf("told %v", err)
	}
}
