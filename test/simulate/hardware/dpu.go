package hardware

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/test/simulate/engine"
)

// Names of the one SNAP service and the one vendor plugin of each DPU.
const (
	Service = "nvidia"
	Plugin  = "local"
)

// functions is how many emulated functions a DPU has.
const functions = 8

// Lies are promises that a SNAP can break, to find out whether that is noticed.
type Lies struct {
	// Withdrawn: it says that it has taken a device away, and shows it on.
	Withdrawn bool
	// InFlight: it takes a device away while writes are on their way.
	InFlight bool
	// Undying: its watchdog does not reset it. OwnPower: it has power while its host has none.
	Undying, OwnPower bool
	// Late: what it had sent when its way to the storage is lost arrives as late as it may.
	Late bool
}

// DPU is a DPU and its host.
type DPU struct {
	// Host is "" for one that was taken out.
	Name, Host string
	// On, SNAP and HostOn: it has power, its SNAP service runs, its host runs.
	On, SNAP, HostOn bool
	// Boots and Starts count those of the DPU, and of its SNAP service.
	Boots, Starts int
	Lies          Lies
	// Pulled: a person has it, and it gets no power. Resetting: it was reset, and boots.
	Pulled, Resetting bool
	// Shelved: it was taken out of its host for good, and gets no power.
	Shelved bool
	// Up is when it was booted last.
	Up time.Time

	engine  *engine.Engine
	dice    *rand.Rand
	storage *Storage
	judge   Judge
	dir     string
	devices map[string]string
	shown   map[string]*shown
	// kept are the writes that wait in functions, by PCI address, for a SNAP that ended.
	kept map[string][]Write
	way  way
	// fed is until when the watchdog leaves the DPU alone; 0: it does not run.
	fed time.Duration
}

// shown is a device that SNAP has.
type shown struct {
	provisioner.Exposure
	volume string
	epoch  int64
	flying []*flight
	// waiting are the host's writes that SNAP could not send, and sent counts those that it did.
	waiting []Write
	sent    int64
	// suspended: its controller was made anew, and has not served yet.
	suspended bool
}

// NewDPU is a DPU that is off. Its sockets and what it keeps on disk are in dir.
func NewDPU(e *engine.Engine, s *Storage, name, host, dir string) (*DPU, error) {
	d := &DPU{Name: name, Host: host, HostOn: true, engine: e, dice: e.Dice("host " + host), storage: s, judge: s.judge, dir: dir, devices: map[string]string{}, shown: map[string]*shown{}, kept: map[string][]Write{}}
	if err := os.MkdirAll(filepath.Dir(d.socket()), 0o755); err != nil {
		return nil, fmt.Errorf("make the directories of DPU %s: %w", name, err)
	}
	return d, nil
}

// Root holds the directories of the SNAP services.
func (d *DPU) Root() string { return filepath.Join(d.dir, "snap") }

// Journal is the file of the driver's journal.
func (d *DPU) Journal() string { return filepath.Join(d.dir, "journal.json") }

func (d *DPU) socket() string { return filepath.Join(d.Root(), Service, "snap.sock") }

// Boot gives the DPU power, and starts SNAP.
func (d *DPU) Boot() error {
	d.On, d.Up = true, time.Now()
	d.Boots++
	return d.StartSNAP()
}

// Feed has the watchdog leave the DPU alone until a time; 0: for ever.
func (d *DPU) Feed(until time.Duration) { d.fed = until }

// Watched reports whether the watchdog runs.
func (d *DPU) Watched() bool { return d.On && d.fed > 0 }

// Bitten reports whether the watchdog resets the DPU now.
func (d *DPU) Bitten(now time.Duration) bool { return d.Watched() && now > d.fed && !d.Lies.Undying }

// PowerOff ends all on the DPU.
func (d *DPU) PowerOff() {
	d.fed = 0
	d.EndSNAP()
	clear(d.kept)
	d.On, d.Resetting = false, false
}

// Replace puts another card in the place of one that has no power. It has its name, and nothing of
// what it kept on disk.
func (d *DPU) Replace() error {
	if err := os.Remove(d.Journal()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace DPU %s: %w", d.Name, err)
	}
	return nil
}

// StartSNAP starts the service. Its socket is another one each time.
func (d *DPU) StartSNAP() error {
	if d.SNAP || !d.On {
		return nil
	}
	d.SNAP = true
	d.Starts++
	_ = os.Remove(d.socket()) // it mostly is not there
	if err := os.WriteFile(d.socket(), nil, 0o600); err != nil {
		return fmt.Errorf("start SNAP on DPU %s: %w", d.Name, err)
	}
	at := time.Unix(int64(d.Starts), 0)
	return os.Chtimes(d.socket(), at, at)
}

// EndSNAP ends the service in the middle of all that it does: what was sent is on its way still,
// and what the host asks for then waits in the function, until a controller is resumed there.
func (d *DPU) EndSNAP() {
	if !d.SNAP {
		return
	}
	d.SNAP = false
	for _, device := range d.names() {
		if x := d.shown[device]; x.Visible && d.HostOn {
			d.kept[x.PCIAddress] = []Write{{Volume: x.volume, DPU: d.Name, Epoch: x.epoch}}
		}
		d.hide(d.shown[device])
		delete(d.shown, device)
	}
	for _, id := range d.devices {
		d.storage.close(volumeOf(id), d.Name)
	}
	clear(d.devices)
}

// volumeOf is the volume that the plugin knows by an id.
func volumeOf(id string) string { return strings.TrimSuffix(id, "-pvc") }

// names of the devices that SNAP has, in order.
func (d *DPU) names() []string {
	var out []string
	for name := range d.shown {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Shows is the epoch under which the host sees a volume; false if it does not.
func (d *DPU) Shows(volume string) (int64, bool) {
	for _, x := range d.shown {
		if x.volume == volume && x.Visible {
			return x.epoch, true
		}
	}
	return 0, false
}

func (d *DPU) answers() error {
	if d.SNAP {
		return nil
	}
	return fmt.Errorf("connect to %s: %w", "snap.sock", provisioner.ErrUnavailable)
}

// Expose is SNAP's.
func (d *DPU) Expose(spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	if err := d.answers(); err != nil {
		return provisioner.Exposure{}, err
	}
	id, made := d.devices[spec.Device]
	if !made {
		return provisioner.Exposure{}, fmt.Errorf("device %s: %w", spec.Device, provisioner.ErrNotFound)
	}
	x := d.shown[spec.Device]
	if x != nil && x.suspended && spec.Recover == nil {
		_ = d.Withdraw(spec.Device)
		x = nil
	}
	if x == nil {
		var err error
		if x, err = d.make(spec, volumeOf(id)); err != nil {
			return provisioner.Exposure{}, err
		}
	}
	d.resume(x)
	if spec.Hidden {
		d.land(x)
		d.hide(x)
		x.Hidden = true
		return x.Exposure, nil
	}
	was := x.Visible
	x.Visible, x.Hidden, x.epoch = true, false, d.judge.Shows(d.Name, x.volume)
	if !was {
		d.write(x)
	}
	return x.Exposure, nil
}

// Withdraw is SNAP's.
func (d *DPU) Withdraw(device string) error {
	if err := d.answers(); err != nil {
		return err
	}
	x := d.shown[device]
	if x == nil || d.Lies.Withdrawn {
		return nil
	}
	if err := d.ended(x); err != nil {
		return err
	}
	d.land(x)
	d.hide(x)
	delete(d.shown, device)
	delete(d.kept, x.PCIAddress)
	return nil
}

// land lets everything land that is on its way: a namespace is detached when it is.
func (d *DPU) land(x *shown) {
	if d.Lies.InFlight {
		return
	}
	for _, f := range x.flying {
		if !f.stray {
			d.storage.land(f)
		}
	}
	x.flying, x.waiting = nil, nil
}

func (d *DPU) hide(x *shown) {
	if x.Visible {
		d.judge.Hides(d.Name, x.volume)
	}
	x.Visible = false
}

// List is SNAP's.
func (d *DPU) List() ([]provisioner.Exposure, error) {
	if err := d.answers(); err != nil {
		return nil, err
	}
	var out []provisioner.Exposure
	for _, name := range d.names() {
		out = append(out, d.shown[name].Exposure)
	}
	return out, nil
}

// write lets the host write while it sees the device.
func (d *DPU) write(x *shown) {
	d.engine.After(time.Duration(d.dice.Int64N(int64(700*time.Millisecond))), func() {
		if !x.Visible || d.shown[x.Device] != x {
			return
		}
		if d.HostOn {
			d.send(x, Write{Volume: x.volume, DPU: d.Name, Epoch: x.epoch})
		}
		d.write(x)
	})
}

// Create is the plugin's: it makes the device of a volume.
func (d *DPU) Create(id string) (string, error) {
	if err := d.answers(); err != nil {
		return "", err
	}
	if d.way.lost {
		return "", d.unreached()
	}
	name := "dev_" + id
	if d.devices[name] == "" {
		d.storage.close(volumeOf(id), d.Name)
	}
	d.devices[name] = id
	return name, nil
}

// Delete is the plugin's: it removes a device.
func (d *DPU) Delete(name string) error {
	if err := d.answers(); err != nil {
		return err
	}
	if d.shown[name] != nil && !d.Lies.Withdrawn {
		return fmt.Errorf("device %s is in use: %w", name, provisioner.ErrPrecondition)
	}
	if id, made := d.devices[name]; made {
		d.storage.close(volumeOf(id), d.Name)
	}
	delete(d.devices, name)
	return nil
}

// OpenAtEpoch is the plugin's.
func (d *DPU) OpenAtEpoch(device string, epoch int64) error {
	if err := d.answers(); err != nil {
		return err
	}
	id, made := d.devices[device]
	if !made {
		return fmt.Errorf("device %s: %w", device, provisioner.ErrNotFound)
	}
	if d.way.lost {
		return d.unreached()
	}
	return d.storage.OpenAt(volumeOf(id), d.Name, epoch)
}

// Devices are those that the plugin has made, with their volumes' ids.
func (d *DPU) Devices() (map[string]string, error) { return d.devices, d.answers() }
