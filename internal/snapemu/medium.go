package snapemu

import "github.com/moor-storage/moor/internal/mediumlog"

// MaxName is the longest name of an emulator, in bytes.
const MaxName = mediumlog.MaxName

// MediumWrite is one accepted write, as the medium saw it.
type MediumWrite = mediumlog.Write

// MediumLogPath is the log of the volume in file, in the directory dir.
func MediumLogPath(dir, file string) string { return mediumlog.Path(dir, file) }

// ReadMediumLog returns the writes recorded in the log at path. See
// mediumlog.Read.
func ReadMediumLog(path string) ([]MediumWrite, error) { return mediumlog.Read(path) }
