-- Format 1. Every format keeps the first three columns of tidegate_meta, which tell the format of a
-- database.
CREATE TABLE tidegate_meta (
    only_row boolean NOT NULL PRIMARY KEY CHECK (only_row),
    format integer NOT NULL,
    revision bigint NOT NULL CHECK (revision >= 0)
);

INSERT INTO tidegate_meta (only_row, format, revision) VALUES (true, 1, 0);

-- Values are JSON. The last two constraints protect against other programs that write here.
CREATE TABLE tidegate_setting (
    key text NOT NULL PRIMARY KEY,
    value text NOT NULL,
    revision bigint NOT NULL,
    CONSTRAINT tidegate_key_length CHECK (length(key) BETWEEN 1 AND 256),
    CONSTRAINT tidegate_value_length CHECK (length(value) BETWEEN 1 AND 16384),
    CONSTRAINT tidegate_max_concurrent_requests CHECK (
        key !~ '^providers[.].+[.]max_concurrent_requests$' OR value ~ '^([1-9][0-9]?|100)$'
    ),
    CONSTRAINT tidegate_max_retries CHECK (
        key !~ '^providers[.].+[.]max_retries$' OR value ~ '^(1?[0-9]|20)$'
    )
);

CREATE TABLE tidegate_change (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    revision bigint NOT NULL,
    at_ms bigint NOT NULL,
    door text NOT NULL,
    who text,
    key text NOT NULL,
    was text,
    became text
);
