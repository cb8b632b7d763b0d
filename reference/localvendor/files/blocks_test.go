package files

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const kib64 = 64 << 10

// stretch is what is found, in bytes.
type stretch struct{ From, To int64 }

// sparse makes a file of a size that holds text at some places, and holes elsewhere.
func sparse(t *testing.T, size int64, texts map[int64]string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	err = f.Truncate(size)
	for at, text := range texts {
		_, again := f.WriteAt([]byte(text), at)
		err = errors.Join(err, again)
	}
	if err := errors.Join(err, f.Sync()); err != nil {
		t.Fatal(err)
	}
	return f
}

func collect(out *[]stretch) func(start, end int64) error {
	return func(start, end int64) error { *out = append(*out, stretch{start, end}); return nil }
}

func TestAllocated(t *testing.T) {
	texts := map[int64]string{0: "a", kib64 * 4: "b", kib64*4 + BlockBytes: "c", kib64 * 9: "d"}
	for name, tc := range map[string]struct {
		size, from int64
		texts      map[int64]string
		want       []stretch
	}{
		"nothing":               {kib64, 0, nil, nil},
		"no bytes":              {0, 0, nil, nil},
		"all":                   {kib64 * 16, 0, texts, []stretch{{0, BlockBytes}, {kib64 * 4, kib64*4 + 2*BlockBytes}, {kib64 * 9, kib64*9 + BlockBytes}}},
		"from the first's end":  {kib64 * 16, BlockBytes, texts, []stretch{{kib64 * 4, kib64*4 + 2*BlockBytes}, {kib64 * 9, kib64*9 + BlockBytes}}},
		"from inside":           {kib64 * 16, kib64*4 + BlockBytes + 7, texts, []stretch{{kib64*4 + BlockBytes, kib64*4 + 2*BlockBytes}, {kib64 * 9, kib64*9 + BlockBytes}}},
		"from a hole":           {kib64 * 16, kib64 * 5, texts, []stretch{{kib64 * 9, kib64*9 + BlockBytes}}},
		"from the end":          {kib64 * 16, kib64 * 16, texts, nil},
		"from a cut end":        {kib64 + 100, kib64 + 100, map[int64]string{kib64 + 50: "x"}, nil},
		"a last block cut":      {kib64 + 100, 0, map[int64]string{kib64 + 50: "x"}, []stretch{{kib64, kib64 + 100}}},
		"less than all of file": {kib64 * 4, 0, texts, []stretch{{0, BlockBytes}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []stretch
			f := sparse(t, max(tc.size, kib64*16), tc.texts)
			if tc.size%kib64 != 0 {
				f = sparse(t, tc.size, tc.texts)
			}
			if err := Allocated(t.Context(), f, Part{tc.from, tc.size}, collect(&got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	const far = comparePiece * 3
	for name, tc := range map[string]struct {
		base, target map[int64]string
		baseSize     int64
		from         int64
		want         []stretch
	}{
		"the same":              {base: map[int64]string{5: "x", far: "y"}, target: map[int64]string{5: "x", far: "y"}},
		"holes alone":           {},
		"written":               {target: map[int64]string{5: "x", far + 1: "y"}, want: []stretch{{0, BlockBytes}, {far, far + BlockBytes}}},
		"zeroed":                {base: map[int64]string{5: "x"}, want: []stretch{{0, BlockBytes}}},
		"written with zeros":    {target: map[int64]string{0: "\x00\x00"}},
		"changed":               {base: map[int64]string{5: "x"}, target: map[int64]string{5: "y"}, want: []stretch{{0, BlockBytes}}},
		"touching":              {target: map[int64]string{BlockBytes: "x", 2 * BlockBytes: "y"}, want: []stretch{{BlockBytes, 3 * BlockBytes}}},
		"over a piece's end":    {target: map[int64]string{comparePiece - 1: "xy"}, want: []stretch{{comparePiece - BlockBytes, comparePiece + BlockBytes}}},
		"one that is not":       {base: map[int64]string{BlockBytes: "z"}, target: map[int64]string{0: "x", BlockBytes: "z", 2 * BlockBytes: "y"}, want: []stretch{{0, BlockBytes}, {2 * BlockBytes, 3 * BlockBytes}}},
		"from inside":           {target: map[int64]string{0: "x", BlockBytes: "y"}, from: BlockBytes + 1, want: []stretch{{BlockBytes, 2 * BlockBytes}}},
		"beyond the base's end": {base: map[int64]string{0: "x"}, baseSize: kib64, target: map[int64]string{0: "x", kib64: "y", kib64 * 3: "\x00"}, want: []stretch{{kib64, kib64 + BlockBytes}}},
		"at the end":            {target: map[int64]string{far + kib64 - 1: "x"}, want: []stretch{{far + kib64 - BlockBytes, far + kib64}}},
	} {
		t.Run(name, func(t *testing.T) {
			const size = far + kib64
			if tc.baseSize == 0 {
				tc.baseSize = size
			}
			var got []stretch
			if err := Changed(t.Context(), sparse(t, tc.baseSize, tc.base), sparse(t, size, tc.target), Part{tc.from, size}, collect(&got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is told of is asked of its reader, and of the context, at once.
func TestBlocksStop(t *testing.T) {
	f, empty := sparse(t, kib64*16, map[int64]string{0: "x", kib64 * 8: "y"}), sparse(t, kib64*16, nil)
	stop, calls := errors.New("stop"), 0
	found := func(int64, int64) error { calls++; return stop }
	ctx, cancel := context.WithCancel(t.Context())
	if err := Allocated(ctx, f, Part{0, kib64 * 16}, found); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("allocated: %v, after %d calls", err, calls)
	}
	if err := Changed(ctx, empty, f, Part{0, kib64 * 16}, found); !errors.Is(err, stop) || calls != 2 {
		t.Errorf("changed: %v, after %d calls", err, calls)
	}
	cancel()
	if err := Allocated(ctx, f, Part{0, kib64 * 16}, found); !errors.Is(err, context.Canceled) {
		t.Errorf("allocated: %v", err)
	}
	if err := Changed(ctx, empty, f, Part{0, kib64 * 16}, found); !errors.Is(err, context.Canceled) {
		t.Errorf("changed: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Allocated(t.Context(), f, Part{0, 1}, found); !errors.Is(err, os.ErrClosed) {
		t.Errorf("allocated of a closed file: %v", err)
	}
	if err := Changed(t.Context(), empty, f, Part{0, 1}, found); !errors.Is(err, os.ErrClosed) {
		t.Errorf("changed of a closed file: %v", err)
	}
}

// memory makes a file without a disk that holds content, with holes for its zeros.
func memory(t *testing.T, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("blocks", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "blocks")
	t.Cleanup(func() { _ = f.Close() })
	err = f.Truncate(int64(len(content)))
	for i, c := range content {
		if c != 0 {
			_, again := f.WriteAt(content[i:i+1], int64(i))
			err = errors.Join(err, again)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// plainly is what is to be found by the plainest way: block for block, all in memory.
func plainly(size, from int64, is func(start, end int64) bool) (out []stretch) {
	for at := int64(0); at < size; at += BlockBytes {
		end := min(at+BlockBytes, size)
		switch {
		case end <= from || !is(at, end):
		case len(out) > 0 && out[len(out)-1].To == at:
			out[len(out)-1].To = end
		default:
			out = append(out, stretch{at, end})
		}
	}
	return out
}

// FuzzBlocks compares with the plainest way what changed; what is allocated may be more
// than what holds data, and never less.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte("a"), []byte("b"), uint32(0), uint16(3))
	f.Add([]byte("x"), []byte{}, uint32(1), uint16(0)) // from the end, in a block that is cut
	f.Add([]byte{}, bytes.Repeat([]byte{1}, 300), uint32(1), uint16(4000))
	f.Add(bytes.Repeat([]byte{0, 1}, 20), bytes.Repeat([]byte{0, 1}, 30), uint32(5000), uint16(65000))
	f.Fuzz(func(t *testing.T, a, b []byte, from uint32, step uint16) {
		// The bytes are spread over the files, so that they touch many blocks.
		size := int64(len(b))*int64(step) + 1
		if size > comparePiece*2 || len(b) > 400 {
			return // larger than is needed
		}
		spread := func(content []byte) []byte {
			all := make([]byte, size)
			for i, c := range content {
				if at := int64(i) * int64(step); at < size {
					all[at] = c
				}
			}
			return all
		}
		base, target := spread(a), spread(b)
		var changed, allocated []stretch
		fileA, fileB := memory(t, base), memory(t, target)
		if err := errors.Join(Changed(t.Context(), fileA, fileB, Part{int64(from), size}, collect(&changed)), Allocated(t.Context(), fileB, Part{int64(from), size}, collect(&allocated))); err != nil {
			t.Fatal(err)
		}
		want := plainly(size, int64(from), func(start, end int64) bool { return !bytes.Equal(base[start:end], target[start:end]) })
		if diff := cmp.Diff(want, changed); diff != "" {
			t.Errorf("changed, of %d bytes from %d (-want +got):\n%s", size, from, diff)
		}
		told := func(start, end int64) bool {
			return slices.ContainsFunc(allocated, func(s stretch) bool { return s.From <= start && end <= s.To })
		}
		if diff := cmp.Diff(plainly(size, int64(from), told), allocated); diff != "" {
			t.Errorf("allocated, of %d bytes from %d, are no merged blocks (-want +got):\n%s", size, from, diff)
		}
		missing := plainly(size, int64(from), func(start, end int64) bool {
			return !told(start, end) && len(bytes.Trim(target[start:end], "\x00")) > 0
		})
		if len(missing) > 0 {
			t.Errorf("data of %d bytes from %d is not told: %v", size, from, missing)
		}
	})
}
