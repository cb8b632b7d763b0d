package power

import (
	"strings"
	"testing"
)

func TestRefuse(t *testing.T) {
	record := Identity{SerialNumber: "S1", UUID: "AB-cd"}
	for name, c := range map[string]struct {
		want, is Identity
		words    string
	}{
		"the machine":                        {record, record, ""},
		"the UUID in another case":           {record, Identity{"S1", "ab-CD"}, ""},
		"no UUID on record":                  {Identity{SerialNumber: "S1"}, record, ""},
		"nothing on record":                  {Identity{}, record, "no serial number is on record"},
		"nothing on record, nothing is said": {Identity{}, Identity{}, "no serial number is on record"},
		"a UUID alone on record":             {Identity{UUID: "AB-cd"}, record, "no serial number is on record"},
		"another serial number":              {record, Identity{"S2", "AB-cd"}, `serial number "S2", and "S1" is on record`},
		"the serial number in another case":  {record, Identity{"s1", "AB-cd"}, `serial number "s1"`},
		"no serial number is said":           {record, Identity{"", "AB-cd"}, `serial number ""`},
		"another UUID":                       {record, Identity{"S1", "ef"}, `UUID "ef", and "AB-cd" is on record`},
		"no UUID is said":                    {record, Identity{SerialNumber: "S1"}, `UUID ""`},
	} {
		got := c.want.Refuse(c.is)
		if (c.words == "") != (got == "") || !strings.Contains(got, c.words) {
			t.Errorf("%s: refused with %q, want %q", name, got, c.words)
		}
	}
}
