package database

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// connectTimeout bounds what a client waits for an address that swallows what it sends.
	connectTimeout = 2 * time.Second
	// commitTimeout bounds a commit. It is longer than what a short pause of the storage
	// takes, and so short that a server is left that has lost its machine.
	commitTimeout = 10 * time.Second
	// retryAfter is how long a client waits after a failure, pace after a commit.
	retryAfter = 100 * time.Millisecond
	pace       = 20 * time.Millisecond
)

// statements. There is no unique index, which would hide a row that is there twice.
const (
	create = "CREATE TABLE commits (number bigint NOT NULL, content text NOT NULL); CREATE INDEX ON commits (number)"
	insert = "INSERT INTO commits VALUES ($1, repeat(md5($1::bigint::text), 8))"
	// read reads the table itself, and not its index.
	read     = "SELECT number, count(*), bool_and(content = repeat(md5(number::text), 8)) FROM commits GROUP BY number"
	failures = "SELECT coalesce(sum(checksum_failures), 0)::bigint FROM pg_stat_database"
)

// Client reaches a PostgreSQL as the superuser postgres, without a password.
type Client struct {
	// Address is where the server is now, "host:port".
	Address func(context.Context) (string, error)
	Ledger  *Ledger
}

// Create makes the table. It fails if there is one.
func (c Client) Create(ctx context.Context) error {
	return c.connected(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, create)
		return err
	})
}

// Commit commits rows with as many connections at the same time, until the context ends. What fails
// is given up, and a connection made anew.
func (c Client) Commit(ctx context.Context, connections int) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				c.Ledger.Fail(c.connected(ctx, func(conn *pgx.Conn) error { return c.commits(ctx, conn) }))
				wait(ctx, retryAfter)
			}
		})
	}
	all.Wait()
}

// commits commits rows over one connection until one fails.
func (c Client) commits(ctx context.Context, conn *pgx.Conn) error {
	for ctx.Err() == nil {
		next := Commit{Row: c.Ledger.Next(), Begun: time.Now()}
		bounded, cancel := context.WithTimeout(ctx, commitTimeout)
		_, err := conn.Exec(bounded, insert, next.Row)
		cancel()
		if err != nil {
			return fmt.Errorf("commit row %d: %w", next.Row, err)
		}
		next.At = time.Now()
		c.Ledger.Acknowledge(next)
		wait(ctx, pace)
	}
	return ctx.Err()
}

// Check reads all rows and says what is wrong with them, and whether PostgreSQL has read a page
// whose checksum is wrong since its statistics began.
func (c Client) Check(ctx context.Context) (wrong []string, err error) {
	acknowledged := c.Ledger.Acknowledged()
	var rows []Row
	var damaged int64
	err = c.connected(ctx, func(conn *pgx.Conn) error {
		found, err := conn.Query(ctx, read)
		if err != nil {
			return fmt.Errorf("read all rows: %w", err)
		}
		if rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[Row]); err != nil {
			return fmt.Errorf("read all rows: %w", err)
		}
		return conn.QueryRow(ctx, failures).Scan(&damaged)
	})
	if err != nil {
		return nil, err
	}
	wrong = Judge(acknowledged, c.Ledger.Sent(), rows)
	if damaged != 0 {
		wrong = append(wrong, fmt.Sprintf("%d pages were read with a wrong checksum", damaged))
	}
	return wrong, nil
}

// connected does something over a connection of its own.
func (c Client) connected(ctx context.Context, do func(*pgx.Conn) error) error {
	address, err := c.Address(ctx)
	if err != nil {
		return fmt.Errorf("find the database: %w", err)
	}
	config, err := pgx.ParseConfig(fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", address))
	if err != nil {
		return fmt.Errorf("describe the database at %s: %w", address, err)
	}
	bounded, cancel := context.WithTimeout(ctx, connectTimeout)
	conn, err := pgx.ConnectConfig(bounded, config)
	cancel()
	if err != nil {
		return fmt.Errorf("connect to the database at %s: %w", address, err)
	}
	defer func() {
		// The server may be gone: closing says goodbye to it, and waits no longer for that.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	return do(conn)
}

// wait waits, but no longer than the context lasts.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
