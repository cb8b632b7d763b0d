package redfish

import (
	"fmt"
	"slices"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/moor-storage/moor/pkg/power"
)

func identity(s *schemas.ComputerSystem) power.Identity {
	return power.Identity{SerialNumber: s.SerialNumber, UUID: s.UUID}
}

// reading is what a system says, with its chassis, to a question that was begun at a time.
func reading(s *schemas.ComputerSystem, at time.Time) (power.Reading, error) {
	out := power.Reading{
		At: at, Is: identity(s), System: stateOf(s.PowerState), Stage: stageOf(s.BootProgress), RestorePolicy: string(s.PowerRestorePolicy),
	}
	if t, err := time.Parse(time.RFC3339, s.LastResetTime); err == nil {
		out.LastReset = t
	}
	all, err := s.Chassis()
	if err != nil {
		return power.Reading{}, fmt.Errorf("read its chassis: %w", err)
	}
	for _, c := range all { // one that is not off is enough
		if is := stateOf(c.PowerState); c.PowerState != "" && (out.Chassis == "" || is != power.StateOff) {
			out.Chassis = is
		}
	}
	return out, nil
}

// stateOf takes nothing for off that is not literally so.
func stateOf(s schemas.PowerState) power.State {
	switch s {
	case schemas.OnPowerState:
		return power.StateOn
	case schemas.OffPowerState:
		return power.StateOff
	}
	return power.StateUnknown
}

// The stages of boot that say whether the operating system runs: those of Redfish, and
// those that BlueField's BMC has of its own.
var (
	running = []string{string(schemas.OSRunningBootProgressTypes), "OsIsRunning"}
	booting = []string{
		string(schemas.PrimaryProcessorInitializationStartedBootProgressTypes), string(schemas.BusInitializationStartedBootProgressTypes),
		string(schemas.MemoryInitializationStartedBootProgressTypes), string(schemas.SecondaryProcessorInitializationStartedBootProgressTypes),
		string(schemas.PCIResourceConfigStartedBootProgressTypes), string(schemas.SystemHardwareInitializationCompleteBootProgressTypes),
		string(schemas.OSBootStartedBootProgressTypes), "BootRom", "BL2", "BL31", "UEFI", "OsStarting",
	}
)

func stageOf(p schemas.BootProgress) power.Stage {
	is := string(p.LastState)
	if p.OEMLastState != "" {
		is = p.OEMLastState
	}
	switch {
	case slices.Contains(running, is):
		return power.StageRunning
	case slices.Contains(booting, is):
		return power.StageBooting
	}
	return power.StageUnknown
}
