package snapemulator

import "github.com/moor-storage/moor/reference/writelog"

// MaxName is the longest name of an emulator, in bytes.
const MaxName = writelog.MaxName

// MediumWrite is one accepted write, as the medium saw it.
type MediumWrite = writelog.Write

// MediumLogPath is the log of the volume in file, in the directory dir.
func MediumLogPath(dir, file string) string { return writelog.Path(dir, file) }

// ReadMediumLog returns the writes recorded in the log at path. See
// writelog.Read.
func ReadMediumLog(path string) ([]MediumWrite, error) { return writelog.Read(path) }
