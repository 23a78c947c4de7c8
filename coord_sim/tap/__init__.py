"""A relay between a job and its real service, which records every call: `coordlab tap`.

Two processes share the work, so that neither decoding nor a slow disk delays the job. `relay` passes
bytes on and hands a copy to `feed`; at its other end `recorder_process` takes them apart (`frames`,
`calls`) and writes the history (`recording`).
"""
