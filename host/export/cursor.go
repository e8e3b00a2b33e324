package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/trusted"
	"golang.org/x/sys/unix"
)

const maxCursor = 16 << 20 // bytes; some 100 for each file of the journal

// errElsewhere says that another process holds the cursor, and sends.
var errElsewhere = errors.New("another process of this host sends to this sink")

// keptCursor is a cursor in a file. Of all processes, one at a time has it open.
type keptCursor struct {
	audit.Cursor
	path string
	lock *os.File // nil while it is not open
}

// open takes the cursor and reads it, unless it is open already.
func (c *keptCursor) open() error {
	if c.lock != nil {
		return nil
	}
	dir := filepath.Dir(c.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := trusted.Dir(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(c.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errElsewhere
		}
		return errors.Join(err, f.Close())
	}
	c.Cursor = audit.Cursor{}
	data, err := trusted.Read(c.path, maxCursor)
	if err == nil {
		err = json.Unmarshal(data, &c.Cursor)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("the cursor %s cannot be read; without the file, the whole "+
			"journal is sent again: %w", c.path, err), f.Close())
	}
	c.lock = f
	return nil
}

// save puts the cursor on the disk, all of it or nothing.
func (c *keptCursor) save() error {
	data, err := json.Marshal(c.Cursor)
	if err == nil {
		err = trusted.Replace(c.path, data, 0o600, filepath.Dir(c.path))
	}
	if err != nil {
		return fmt.Errorf("keeping how far the export has come: %w", err)
	}
	return nil
}

// close lets other processes have the cursor.
func (c *keptCursor) close() {
	if c.lock != nil {
		_ = c.lock.Close()
		c.lock = nil
	}
}
