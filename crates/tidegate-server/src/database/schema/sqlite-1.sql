-- Format 1. Every format keeps the first three columns of tidegate_meta, which tell the format of a
-- database.
CREATE TABLE tidegate_meta (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    format INTEGER NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 0)
) STRICT;

INSERT INTO tidegate_meta (only_row, format, revision) VALUES (1, 1, 0);

-- Values are JSON. The last two constraints protect against other programs that write here.
CREATE TABLE tidegate_setting (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    revision INTEGER NOT NULL,
    CONSTRAINT tidegate_key_length CHECK (length(key) BETWEEN 1 AND 256),
    CONSTRAINT tidegate_value_length CHECK (length(value) BETWEEN 1 AND 16384),
    CONSTRAINT tidegate_max_concurrent_requests CHECK (
        key NOT GLOB 'providers.?*.max_concurrent_requests'
        OR value GLOB '[1-9]' OR value GLOB '[1-9][0-9]' OR value = '100'
    ),
    CONSTRAINT tidegate_max_retries CHECK (
        key NOT GLOB 'providers.?*.max_retries'
        OR value GLOB '[0-9]' OR value GLOB '1[0-9]' OR value = '20'
    )
) STRICT, WITHOUT ROWID;

CREATE TABLE tidegate_change (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    revision INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    door TEXT NOT NULL,
    who TEXT,
    key TEXT NOT NULL,
    was TEXT,
    became TEXT
) STRICT;
