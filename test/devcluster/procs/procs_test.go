package procs

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	rest := " 0 0 0 0 0 0 0 0 0 150 50 0 0 20 0 1 0 4711 1 2"
	cases := []struct {
		name, text string
		want       Stat
		wantErr    bool
	}{
		{name: "plain", text: "12 (sh) S 7" + rest, wantErr: false, want: Stat{'S', 7, 2 * time.Second, 4711}},
		{name: "command with brackets and blanks", text: "12 (a) b (c)) Z 1" + rest, want: Stat{'Z', 1, 2 * time.Second, 4711}},
		{name: "no command", text: "12 sh S 7", wantErr: true},
		{name: "too short", text: "12 (sh) S 7 1 2", wantErr: true},
		{name: "empty", text: "", wantErr: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseStat([]byte(c.text))
			if (err != nil) != c.wantErr {
				t.Fatalf("error %v, want one: %v", err, c.wantErr)
			}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestResident(t *testing.T) {
	got, err := parseResident([]byte("Name:\tx\nVmHWM:\t   99999 kB\nVmRSS:\t   50000 kB\nThreads:\t3\n"))
	if err != nil || got != 51.2 {
		t.Errorf("%v MB, %v; want 51.2", got, err)
	}
	if _, err := parseResident([]byte("Name:\tkthread\n")); err == nil {
		t.Error("a status without VmRSS is no error")
	}
	if got, err := Resident(os.Getpid()); err != nil || got < 1 {
		t.Errorf("this process has %v MB, %v", got, err)
	}
}

func TestIdentityOfAReusedNumberIsNotAlive(t *testing.T) {
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this process is alive")
	}
	for name, other := range map[string]Identity{
		"other start": {PID: self.PID, Start: self.Start + 1, Boot: self.Boot},
		"other boot":  {PID: self.PID, Start: self.Start, Boot: "another"},
		"nothing":     {},
	} {
		if other.Alive() {
			t.Errorf("%s: a different process passes for this one", name)
		}
		if err := other.Signal(syscall.SIGKILL); other.PID > 0 && err != nil {
			t.Errorf("%s: signal to a process that is gone: %v", name, err)
		}
	}
}

func TestSignalEndsTheProcess(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	children, err := Children(os.Getpid())
	if err != nil || len(children) == 0 {
		t.Errorf("children %v, %v; want the process just started", children, err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if id.Alive() {
		t.Error("the process is still alive")
	}
}
