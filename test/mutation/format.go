package main

const (
	disk       = "./internal/hostdev"
	diskFormat = "internal/hostdev/format.go"
)

// format are the checks that a used device is never formatted.
var format = []mutation{
	{name: "a device with a known signature is formatted", tests: disk, edits: []edit{
		{diskFormat, "	case !found.None():\n		return false, foreign", "	case path == \"\":\n		return false, foreign"},
	}},
	{name: "a device with data is formatted", tests: disk, edits: []edit{
		{diskFormat, "	if at >= 0 {\n", "	if at >= size {\n"},
	}},
	{name: "every device is formatted", tests: disk, edits: []edit{
		{diskFormat, "	case found.Type == fsType && !begun:\n		return false, nil\n	case !found.None():\n		return false, foreign", "	case path == \"\":\n		return false, foreign"},
		{diskFormat, "	if at >= 0 {\n", "	if at >= size {\n"},
	}, focus: moves, program: "snap-csi-plugin", words: "every acknowledged write is read again"},
}
