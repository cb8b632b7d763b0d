package hostdev

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// resource is a large resource of Vital Product Data.
func resource(tag byte, body string) string {
	return string(binary.LittleEndian.AppendUint16([]byte{tag}, uint16(len(body)))) + body
}

// field is a keyword with its value.
func field(keyword, value string) string { return keyword + string([]byte{byte(len(value))}) + value }

// vpdWith is what a function of SNAP has, with a VUID.
func vpdWith(vuid string) string {
	return resource(vpdName, "BlueField NVMe SNAP Controller") + resource(vpdReadOnly, field("PN", "part")+field("VU", vuid)+field("RV", "\x00")) + "\x78"
}

func TestVPD(t *testing.T) {
	long := strings.Repeat("x", 255)
	for name, tc := range map[string]struct {
		image, want string
		err         error
	}{
		"as SNAP has it":             {vpdWith("MT1"), "MT1", nil},
		"padded":                     {vpdWith("MT1 \x00\x00"), "MT1", nil},
		"the longest":                {vpdWith(long), long, nil},
		"no such keyword":            {resource(vpdReadOnly, field("PN", "VU\x03abc")) + "\x78", "", nil},
		"in the part to be written":  {resource(vpdReadOnly, field("PN", "p")) + resource(vpdWritable, field("VU", "MT2")) + "\x78", "MT2", nil},
		"in both":                    {resource(vpdReadOnly, field("VU", "MT1")) + resource(vpdWritable, field("VU", "MT2")) + "\x78", "MT1", nil},
		"in the name only":           {resource(vpdName, field("VU", "MT1")) + "\x78", "", nil},
		"after the end":              {"\x78" + vpdWith("MT1"), "", nil},
		"empty value":                {resource(vpdReadOnly, field("VU", "")) + "\x78", "", nil},
		"empty":                      {"", "", io.EOF},
		"without an end":             {resource(vpdReadOnly, field("PN", "p")), "", io.EOF},
		"zeros":                      {strings.Repeat("\x00", 64), "", errVPD},
		"ones, as of a device gone":  {strings.Repeat("\xff", 64), "", errVPD},
		"cut in the size":            {"\x90\x01", "", io.EOF},
		"cut in a field's head":      {"\x90\x02\x00VU", "", errVPD},
		"field longer than resource": {resource(vpdReadOnly, "VU\x09MT1") + "\x78", "", errVPD},
		"resource longer than image": {"\x90\xff\xffVU\x09MT1", "", errVPD},
		"more than VPD can have":     {strings.Repeat(resource(vpdName, strings.Repeat("n", 0x7fff)), 2) + vpdWith("MT1"), "", errVPD},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := vpdVUID(strings.NewReader(tc.image))
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v, want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

// counted bounds what is read of an image.
type counted struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counted) ReadAt(p []byte, at int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, at)
}

func FuzzVPD(f *testing.F) {
	f.Add([]byte(vpdWith("MT2333XZ0VJKNVMES0D0F0")), "MT9")
	f.Add([]byte("\x90\xff\xffVU\x09MT1"), "")
	f.Add([]byte(strings.Repeat("\x82\x00\x00", 64)), "a\x00b")
	f.Fuzz(func(t *testing.T, image []byte, vuid string) {
		r := &counted{ReaderAt: bytes.NewReader(image)}
		got, err := vpdVUID(r)
		if got != "" && (err != nil || !bytes.Contains(image, []byte(got))) {
			t.Fatalf("%q, %v: not in the image", got, err)
		}
		if r.reads > vpdBytes || r.bytes > 2*vpdBytes {
			t.Fatalf("%d reads of %d bytes", r.reads, r.bytes)
		}
		if len(vuid) > 255 {
			return
		}
		want := strings.TrimRight(vuid, " \x00")
		if got, err := vpdVUID(strings.NewReader(vpdWith(vuid))); got != want || err != nil {
			t.Fatalf("%q was read as %q, %v", vuid, got, err)
		}
	})
}
