<?php
// The protocol of ouqiang/delay-queue from PHP 7.4 or newer, without packages or extensions.
//
//     DUELINE_URL=http://127.0.0.1:9277 php examples/php/ouqiang.php
//
// An order closes after a second unless it is paid. One of two orders is paid in time.

declare(strict_types=1);

$url = getenv('DUELINE_URL') ?: 'http://127.0.0.1:9277';

/** One call. The status is always 200; a `code` other than 0 means that it failed. */
function call(string $path, array $value): ?array
{
    global $url;
    $options = [
        'method' => 'POST',
        'header' => 'Content-Type: application/json',
        'content' => json_encode($value, JSON_THROW_ON_ERROR),
        'timeout' => 200, // an idle pop is held for 178 s
    ];
    $text = file_get_contents($url . $path, false, stream_context_create(['http' => $options]));
    if ($text === false) {
        throw new RuntimeException("no answer from $url");
    }
    $answer = json_decode($text, true, 512, JSON_THROW_ON_ERROR);
    if ($answer['code'] !== 0) {
        throw new RuntimeException($answer['message']);
    }
    return $answer['data'];
}

$topic = 'orders-' . bin2hex(random_bytes(6));
$unpaid = "$topic-A-1"; // ids are unique over all topics
$paid = "$topic-A-2";

foreach ([$unpaid, $paid] as $id) {
    // Times are whole seconds; the body is a string.
    call('/push', ['topic' => $topic, 'id' => $id, 'delay' => 1, 'ttr' => 60, 'body' => json_encode(['number' => $id])]);
    echo "pushed $id\n";
}
call('/delete', ['id' => $paid]);
echo "deleted $paid\n";

do {
    $job = call('/pop', ['topic' => $topic]);
} while ($job === null);
echo "popped {$job['id']} ", json_decode($job['body'], true)['number'], "\n";

// A job that is not finished within its ttr is redelivered, so do nothing after a failure.
call('/finish', ['id' => $job['id']]);
echo "finished {$job['id']}\n";
echo 'left ', json_encode(call('/get', ['id' => $job['id']])), "\n";
