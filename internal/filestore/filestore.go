// Package filestore keeps small records in a directory, a file each, for programs that
// have to know after a restart what they did before it.
package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Store keeps a record of type T, as JSON, for each key. Safe for concurrent use, by
// several processes too: a record is there whole or not at all. What is kept survives
// the program, not a loss of power.
type Store[T any] struct {
	// Dir has the records; Put makes it, for this user and group alone.
	Dir string
}

// file is named by a hash: a key may be no file name.
func (s Store[T]) file(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:16])+suffix)
}

// suffix is that of the names of records.
const suffix = ".json"

// Put keeps the record of a key in place of the one before.
func (s Store[T]) Put(key string, record T) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the record of %s: %w", key, err)
		}
	}()
	raw, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o750); err != nil {
		return err
	}
	whole, err := os.CreateTemp(s.Dir, ".new-*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = whole.Write(raw)
	if err = errors.Join(err, whole.Close()); err == nil {
		err = os.Rename(whole.Name(), s.file(key))
	}
	if err != nil {
		return errors.Join(err, os.Remove(whole.Name()))
	}
	return nil
}

// Get returns the record of a key, and whether there is one. A damaged one is none; one
// that cannot be read now is an error.
func (s Store[T]) Get(key string) (record T, found bool, err error) {
	if record, found, err = read[T](s.file(key)); err != nil {
		return record, false, fmt.Errorf("read the record of %s: %w", key, err)
	}
	return record, found, nil
}

func read[T any](path string) (record T, found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record, false, nil
	}
	if err != nil {
		return record, false, err
	}
	if json.Unmarshal(raw, &record) != nil {
		var none T
		return none, false, nil
	}
	return record, true, nil
}

// All returns the records of all keys, but for damaged ones, in no order.
func (s Store[T]) All() ([]T, error) {
	files, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var out []T
	for _, file := range files {
		if filepath.Ext(file.Name()) != suffix {
			continue // one that is being written
		}
		record, found, err := read[T](filepath.Join(s.Dir, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("list records: %w", err)
		}
		if found {
			out = append(out, record)
		}
	}
	return out, nil
}

// Delete forgets the record of a key; one that is not there is success.
func (s Store[T]) Delete(key string) error {
	if err := os.Remove(s.file(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the record of %s: %w", key, err)
	}
	return nil
}
