"""The tables of the ledger file.

`requests` is the log of what was received; `effects` what was made; `answers` what is replayed
under a key; `barriers` the charge keys refunded before their charge came; `counters` numbers
everything. `jobs` is what was acknowledged and is to be reported; `callbacks` the log of reports.
"""

from typing import Final

VERSION: Final = 2
"""Counts what an older ledger cannot be read with; it is in the file as ``user_version``."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    key TEXT,
    saga TEXT,
    step TEXT,
    call TEXT,
    attempt TEXT,
    body_sha256 TEXT,
    body_text TEXT NOT NULL,
    fault TEXT,
    outcome TEXT CHECK (outcome IN ('applied', 'replayed', 'refused', 'none', 'accepted')),
    outcome_seq INTEGER CHECK (outcome_seq > seq),
    status INTEGER,
    resource TEXT,
    CHECK ((outcome IS NULL) = (outcome_seq IS NULL))
) STRICT;
CREATE INDEX IF NOT EXISTS requests_by_saga ON requests (saga);
CREATE INDEX IF NOT EXISTS requests_by_key ON requests (key);
CREATE TABLE IF NOT EXISTS effects (
    resource TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    item TEXT NOT NULL,
    request_seq INTEGER NOT NULL REFERENCES requests,
    key TEXT,
    saga TEXT,
    step TEXT,
    created_seq INTEGER NOT NULL UNIQUE CHECK (created_seq > request_seq),
    created_at REAL NOT NULL,
    undone_seq INTEGER UNIQUE CHECK (undone_seq > created_seq),
    undone_by_key TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS effects_by_key ON effects (key);
CREATE INDEX IF NOT EXISTS effects_by_saga ON effects (saga);
CREATE INDEX IF NOT EXISTS effects_by_undo ON effects (undone_by_key);
CREATE INDEX IF NOT EXISTS effects_live ON effects (kind, created_seq) WHERE undone_seq IS NULL;
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    body TEXT NOT NULL,
    resource TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS barriers (charge_key TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS jobs (
    request_seq INTEGER PRIMARY KEY REFERENCES requests,
    url TEXT NOT NULL,
    body BLOB NOT NULL,
    reserved TEXT,
    outcome TEXT,
    status INTEGER,
    answer TEXT,
    resource TEXT,
    reported INTEGER NOT NULL DEFAULT 0,
    is_finished INTEGER NOT NULL DEFAULT 0 CHECK (is_finished IN (0, 1)),
    CHECK ((outcome IS NULL) = (answer IS NULL))
) STRICT;
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (request_seq) WHERE is_finished = 0;
CREATE TABLE IF NOT EXISTS callbacks (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    request_seq INTEGER NOT NULL REFERENCES jobs,
    report INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    sent_to TEXT NOT NULL CHECK (sent_to IN ('given', 'forged', 'dead')),
    is_changed INTEGER NOT NULL CHECK (is_changed IN (0, 1)),
    token_sha256 TEXT NOT NULL,
    body_text TEXT NOT NULL,
    answered_seq INTEGER CHECK (answered_seq > seq),
    status INTEGER,
    error TEXT,
    UNIQUE (request_seq, report, attempt)
) STRICT;
CREATE VIEW IF NOT EXISTS named_callbacks AS
    SELECT callbacks.*, requests.key, requests.saga, requests.step, requests.call
    FROM callbacks JOIN requests ON requests.seq = request_seq;
"""
