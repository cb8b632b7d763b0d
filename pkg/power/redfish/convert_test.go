package redfish

import (
	"testing"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/moor-storage/moor/pkg/power"
)

// TestStates: only a literal Off is off.
func TestStates(t *testing.T) {
	for is, want := range map[schemas.PowerState]power.State{
		"On": power.StateOn, "Off": power.StateOff, "": power.StateUnknown, "off": power.StateUnknown,
		schemas.PoweringOffPowerState: power.StateUnknown, schemas.PoweringOnPowerState: power.StateUnknown, schemas.PausedPowerState: power.StateUnknown,
	} {
		if got := stateOf(is); got != want {
			t.Errorf("%q is %s, want %s", is, got, want)
		}
	}
}

// TestStages: BlueField's own words count before Redfish's.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		last schemas.BootProgressTypes
		oem  string
		want power.Stage
	}{
		{"", "", power.StageUnknown},
		{"None", "", power.StageUnknown},
		{"OSRunning", "", power.StageRunning},
		{"OEM", "", power.StageUnknown},
		{"OEM", "OsIsRunning", power.StageRunning},
		{"OSRunning", "UEFI", power.StageBooting},
		{"OSRunning", "LowPowerStandby", power.StageUnknown},
		{"OSBootStarted", "", power.StageBooting},
		{"SetupEntered", "", power.StageUnknown},
	} {
		if got := stageOf(schemas.BootProgress{LastState: c.last, OEMLastState: c.oem}); got != c.want {
			t.Errorf("%+v is %q", c, got)
		}
	}
}
