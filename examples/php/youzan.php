<?php
// The Youzan-style protocol from PHP 7.4 or newer, without packages or extensions.
//
//     DUELINE_URL=http://127.0.0.1:9277 php examples/php/youzan.php
//
// An order closes after a second unless it is paid. One of two orders is paid in time.

declare(strict_types=1);

$url = getenv('DUELINE_URL') ?: 'http://127.0.0.1:9277';

/** One command. The status is always 200; `success` tells whether it was done. */
function call(string $command, array $fields): array
{
    global $url;
    $options = [
        'method' => 'POST',
        'header' => 'Content-Type: application/json',
        'content' => json_encode(['command' => $command] + $fields, JSON_THROW_ON_ERROR),
        'timeout' => 60, // longer than the pop below may wait
    ];
    $text = file_get_contents($url, false, stream_context_create(['http' => $options]));
    if ($text === false) {
        throw new RuntimeException("no answer from $url");
    }
    $answer = json_decode($text, true, 512, JSON_THROW_ON_ERROR);
    if (!$answer['success']) {
        throw new RuntimeException($answer['error']);
    }
    return $answer;
}

$topic = 'orders-' . bin2hex(random_bytes(6));
$unpaid = "$topic-A-1"; // ids are unique over all topics
$paid = "$topic-A-2";

foreach ([$unpaid, $paid] as $id) {
    // Times are in seconds. A body that is an object comes back as JSON text.
    call('add', ['topic' => $topic, 'id' => $id, 'delay' => 1, 'TTR' => 60, 'body' => ['number' => $id]]);
    echo "added $id\n";
}
call('delete', ['id' => $paid]);
echo "deleted $paid\n";

do {
    $job = call('pop', ['topic' => $topic, 'timeout' => 20]); // without a timeout it does not wait
} while ($job['id'] === null);
echo "popped {$job['id']} ", json_decode($job['value'], true)['number'], "\n";

// A job that is not finished within its TTR is redelivered, so do nothing after a failure.
call('finish', ['id' => $job['id']]);
echo "finished {$job['id']}\n";
echo 'left ', json_encode(call('pop', ['topic' => $topic])['id']), "\n";
