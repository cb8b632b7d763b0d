package machine

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Init is process 1 of a machine: it arranges the machine's mounts, tells the
// parent, and then reaps orphans for ever. It returns only an error.
func Init(specFile string) error {
	if os.Getpid() != 1 {
		return errors.New("start a machine: this is not process 1 of new namespaces; only moor-dev up runs this command")
	}
	ready := os.NewFile(readyFD, "ready")
	err := arrange(specFile)
	word := readyWord
	if err != nil {
		word = err.Error()
	}
	_, werr := ready.WriteString(word)
	if err := errors.Join(err, werr, ready.Close()); err != nil {
		return err
	}
	reap()
	return errors.New("process 1 has nothing more to do")
}

func arrange(specFile string) error {
	spec, err := readSpec(specFile)
	if err != nil {
		return err
	}
	for _, file := range spec.Cgroups {
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup %s: %w", file, err)
		}
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set the host name %s: %w", spec.Name, err)
	}
	if err := mountAll(spec); err != nil {
		return err
	}
	for name, value := range spec.Settings {
		_ = os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0)
	}
	return nil
}

func mountAll(spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the machine's mounts private: %w", err)
	}
	if err := mountRun(spec); err != nil {
		return err
	}
	// Before the binds: one of them lies in /proc.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, b := range spec.Binds {
		if err := bind(b.Source, b.Target); err != nil {
			return err
		}
	}
	// The kubelet and CSI drivers need mounts to propagate into pods.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make the machine's mounts shared: %w", err)
	}
	return nil
}

// mountRun prepares an empty /run beside the old one, since what is bound into
// it comes from the old one, and then moves it there.
func mountRun(spec Spec) error {
	if err := unix.Mount("tmpfs", spec.RunDir, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return fmt.Errorf("mount an empty /run: %w", err)
	}
	for _, dir := range []string{"lock", "netns"} {
		if err := os.Mkdir(filepath.Join(spec.RunDir, dir), 0o755); err != nil {
			return fmt.Errorf("prepare /run: %w", err)
		}
	}
	for _, b := range spec.RunBinds {
		target := filepath.Join(spec.RunDir, b.Target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("prepare /run: %w", err)
		}
		if err := bind(b.Source, target); err != nil {
			return err
		}
	}
	if err := unix.Mount(spec.RunDir, "/run", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new /run into place: %w", err)
	}
	return nil
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

// reap waits for orphans as they end, which process 1 inherits.
func reap() {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD)
	for range signals {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
